"""What exists only for speed; each has a plain counterpart and a switch."""
