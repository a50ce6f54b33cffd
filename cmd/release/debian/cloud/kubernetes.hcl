# Pods of a Kubernetes cluster: copy this to /etc/sandbox-broker/conf.d, for root and the
# group sandbox-broker alone to read. The kubeconfig belongs to root and that group too.
provider "kubernetes" {
  kubeconfig    = "/etc/sandbox-broker/kubeconfig"
  namespace     = "sandboxes"
  image         = "registry.example.com/sandbox-rootfs:1"
  guest_image   = "registry.example.com/sandbox-guest:1"
  runtime_class = "gvisor"
  pool_size     = 10
}
