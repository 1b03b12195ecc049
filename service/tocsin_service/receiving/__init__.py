"""What trainers send, whichever way it comes in: what is taken, and what is wrong with the rest."""
