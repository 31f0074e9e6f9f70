"""What a controller decides.  Pure: state and event in, state and effects out.

One module per subject of a decision.  They stay in one folder because they share one state
(`context`), which each may change: `core` and `steps` call them, and `driver`, `sender` and
`controller_election` carry out the effects.
"""
