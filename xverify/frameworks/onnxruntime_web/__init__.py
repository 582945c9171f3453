"""onnxruntime-web, the ONNX Runtime of browsers, in Node.js."""
