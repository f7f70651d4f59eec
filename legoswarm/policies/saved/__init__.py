"""The policy file: its description, its weights, and acting with them."""
