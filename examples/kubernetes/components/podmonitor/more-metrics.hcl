# Whoever reaches the port can read the metrics: policy-metrics says who does.
metrics {
  listen = "0.0.0.0:9386"
}
