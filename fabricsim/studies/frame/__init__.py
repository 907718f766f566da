"""What all studies share: what one declares, which there are, runs of training, summaries and pictures."""
