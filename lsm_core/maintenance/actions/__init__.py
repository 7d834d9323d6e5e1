"""Built-in actions: their declarations, and one module or folder per action with its plan, apply and report.

Shared classes of plans and reports are in `lsm_core.maintenance.action`. An action must not change a table outside its
`apply`. Begin with `built_in`, the list of all actions.
"""
