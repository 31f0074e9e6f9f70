"""The decisions of a controller.  Pure: state and event in, state and effects out.

One module per subject of a decision.  They stay in one folder because they share one state
(`context`), which each may change: `core` and `answers` call them.  They yield `records`; a store
(`active`) keeps these, and no rule knows which one.
"""
