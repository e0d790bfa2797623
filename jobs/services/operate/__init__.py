"""Operations of people on work: by hand, in bulk, with dead letters and pauses."""
