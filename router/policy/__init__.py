"""Policy: the reviewed folder in, decisions out. The only package that imports cedarpy.

strict     reading with file and line            folder     YAML files, bytes, version
schema     entity types                          fragment   what a policy may say
load       the folder as one `PolicySet`         residual   Cedar's open ends to filters
decide     grants, recheck, audit, disclosure    live       the current version, reloaded when its bytes change
bound      how large a filter can get
"""

from router.policy.decide import PolicySet, Statement, Verdict, to_day_ms
from router.policy.live import LivePolicies
from router.policy.load import inspect_folder, keep_version, load_policies
from router.policy.strict import Fault

__all__ = [
    "Fault",
    "LivePolicies",
    "PolicySet",
    "Statement",
    "Verdict",
    "inspect_folder",
    "keep_version",
    "load_policies",
    "to_day_ms",
]
