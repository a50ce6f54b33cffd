# Who may ask the broker with gVisor. The token of this tenant is demo-token, which everybody
# knows: replace it by what `sandbox-broker token` prints.
tenant "demo" {
  token_sha256 = ["7c43ef5ae21d43ce2743f770c68e24def1a43ee2f416d2438410c8af7af2ff2c"]
}
