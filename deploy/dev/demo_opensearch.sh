#!/bin/sh
# The demonstration with its documents in OpenSearch: the same world, questions and checks, on a node that is started here and
# left running, so that the commands printed at the end work. `deploy/dev/opensearch.sh stop` ends it.
#
#     deploy/dev/demo_opensearch.sh [FOLDER]        FOLDER (default build/demo-opensearch) is made anew
set -eu
cd "$(dirname "$0")/../.."

folder="${1:-build/demo-opensearch}"
address="$(deploy/dev/opensearch.sh start)"
rm -rf "$folder"
mkdir -p "$folder/deploy"
cp -R policies "$folder/policies"
cp -R deploy/demo "$folder/deploy/demo"
rm -rf "$folder/deploy/demo/state"
cat >>"$folder/deploy/demo/pointsman.toml" <<TOML

[stores.opensearch]
hosts = ["$address"]
prefix = "demo"
replicas = 0
TOML
.venv/bin/python - "$address" <<'PY'
import sys, urllib.request
urllib.request.urlopen(urllib.request.Request(f"{sys.argv[1]}/demo-t-*", method="DELETE"), timeout=60)  # of an earlier run
PY
.venv/bin/pointsman demo --dir "$folder"
echo "documents are in OpenSearch at $address:"
.venv/bin/python - "$address" <<'PY'
import json, sys, urllib.request
with urllib.request.urlopen(f"{sys.argv[1]}/_cat/indices/demo-t-*?format=json&h=index,docs.count,store.size&s=index", timeout=60) as answer:
    for row in json.load(answer):
        print(f"  {row['index']}  {row['docs.count']} entries  {row['store.size']}")
PY
