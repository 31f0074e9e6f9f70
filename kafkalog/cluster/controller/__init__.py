"""What a controller decides.  Pure: state and event in, state and effects out."""
