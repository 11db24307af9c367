# In a bare Debian: install what was packed, compile a model, check it, serve it, ask it, from C and from Python.
set -eu
cd /packed
for program in cc ld llvm-config clang; do
    if command -v "$program"; then echo "this Debian is not bare"; exit 1; fi
done
tar -xzf "$1.tar.gz"
programs="/packed/$1/bin"
export PATH="$programs:$PATH"

sardonyx compile "$2/model.onnx" -o states.sdx
sardonyx-run check states.sdx --data "$2"
sardonyx compile "$2/model.onnx" --pooling mean --normalize --tokenizer tokenizer.json -o minilm.sdx
LD_LIBRARY_PATH="/packed/$1/lib" ./embed states.sdx 101 7592 2088 102 > /dev/null

python3 -m venv python
python/bin/pip install -q --no-index --find-links /packed sardonyx sardonyx-compiler

sardonyx-serve minilm.sdx --listen 127.0.0.1:8417 &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
# The wheel has a compiler of its own.
PATH=/usr/bin:/bin python/bin/python client.py minilm.sdx "$2/model.onnx"
kill -TERM $server
wait $server
