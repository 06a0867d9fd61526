from snakemake.utils import min_version

min_version("9.0")


# A file given with --configfile stands alone: the default study is not mixed into it.
if "study" not in config:

    configfile: "config/config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"


# Seconds each: on a cluster they run where the workflow runs.
localrules:
    parse,
    aggregate,
    analyse,
    relieve,
    findings,
    calibrate,
    figure,
    report,
    manifest,


# A pack was measured elsewhere: whatever this folder did before, nothing of it is deployed or measured here, and no answer in it is run.
if not PACKED:

    localrules:
        engine,
        weights,
        deploy,
        grade,

    include: "workflow/rules/engine.smk"
    include: "workflow/rules/weights.smk"
    include: "workflow/rules/deploy.smk"
    include: "workflow/rules/measure.smk"
    include: "workflow/rules/tune.smk"
    include: "workflow/rules/grade.smk"


include: "workflow/rules/parse.smk"
include: "workflow/rules/aggregate.smk"
include: "workflow/rules/analyse.smk"
include: "workflow/rules/calibrate.smk"
include: "workflow/rules/figure.smk"
include: "workflow/rules/report.smk"


rule all:
    """Every figure, the report and the manifest that lists them."""
    default_target: True
    input:
        paths.MANIFEST,


rule measured:
    """Every run, measured and not looked at: for a machine that measures for another one."""
    input:
        INDEXES,
