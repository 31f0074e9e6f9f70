"""KRaft's Raft as a pure core: state, event and time in; state and effects out."""
