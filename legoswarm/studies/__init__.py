"""Every table and figure of the paper as a few lines of data over training and evaluation."""
