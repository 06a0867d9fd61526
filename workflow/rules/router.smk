rule router:
    """The router's environment, built from its lock."""
    output:
        record=paths.ROUTER,
    log:
        "logs/router/{router}.log",
    localrule: True
    conda:
        "../envs/bench.yaml"
    params:
        lock=lambda wildcards: ROUTERS[wildcards.router].lock,
        locks=router_locks_of,
    script:
        "../scripts/router.py"
