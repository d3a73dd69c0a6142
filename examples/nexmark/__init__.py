"""The Nexmark suite: queries over the events of an auction house; see README.md."""
