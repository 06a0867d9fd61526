# usage: go.sh PHASE SECONDS [DEPLOYMENT...]; called in the repository's root, with OUT set
PHASE=$1; LIMIT=$2; shift 2
T=$(date +%s); at() { echo "## $(( $(date +%s) - T )) s: $*"; }
PY=${PY:-python3}; SITE=${SITE:-$HOME/site}
ulimit -n 65536 2>/dev/null
mkdir -p $OUT
if [ $PHASE = first ]; then
  nvidia-smi --query-gpu=name,memory.total,driver_version,power.limit,clocks.max.sm,clocks.max.mem --format=csv || true
  $PY -V; nproc; which gcc git xz; ls "$($PY -c 'import sysconfig;print(sysconfig.get_paths()["include"])')/Python.h"; ls -d .git
  mkdir -p $SITE && tar -C $SITE -xJf carry/ship.tar.xz; rm -rf $SITE/vllm/third_party/deep_gemm; at unpacked
  $PY -m compileall -q -j 0 $SITE >/dev/null 2>&1; at compiled
  mkdir -p $HOME/vllm-cache && cp -r carry/modelinfos $HOME/vllm-cache/ 2>/dev/null
  if [ -z "$REHEARSE" ]; then
  cat > $HOME/vllm-python <<EOF
#!/bin/sh
export PYTHONPATH=$SITE VLLM_CACHE_ROOT=$HOME/vllm-cache
exec $(which $PY) "\$@"
EOF
  chmod +x $HOME/vllm-python
  
  : $PY -m pip list 2>/dev/null | grep -i '^\(torch\|triton\|transformers\|numpy\|numba\|huggingface\|tokenizers\) '
  fi
fi
STUDY=${STUDY:-}
if [ -z "$STUDY" ]; then case "$(nvidia-smi --query-gpu=name --format=csv,noheader)" in *H200*) STUDY=carry/h200.yaml;; *) STUDY=carry/h100.yaml;; esac; fi
export PYTHONPATH=$PWD/src:$SITE
$PY carry/there.py $STUDY $(( LIMIT - ($(date +%s) - T) )) "$@" 2>&1
at measured
$PY -m bench.cli pack --configfile $STUDY --output $HOME/pack.tar.gz 2>&1 | tail -3
ls -la $HOME/pack.tar.gz; split -b 15M -d $HOME/pack.tar.gz $OUT/pack.
tail -c 200000 results/deployments/*/server.log > $OUT/server.log; tail -n 30 logs/measure/*/*.log | tail -c 3000
at packed; ls -la $OUT
