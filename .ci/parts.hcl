# The parts of the tests, read by e2e/gate. `make test` runs those with a gate; `make test-all` runs
# all of them. Each package with tests is in exactly one part without a variant, and a test compares.
#
#   purpose   what the part shows
#   gate      "short" or "whole": how `make test` runs it, with or without -short
#   packages  of the module, as for `go list`; except takes some away
#   tests     a regular expression that selects tests; skip leaves some out
#   variant   the same tests once more, over what the variant names
#   with      what the tests run beside: .ci/with-docker, .ci/with-postgres, .ci/with-cluster
#   make      targets that `make test-all` makes before; it always makes build and runsc
#   race      the race detector watches the tests
#   race_programs  it watches the broker and the plugins, where `make test-all` runs the part
#   jobs      packages at a time, 1 by default
#   parallel  tests of a package at a time; its own number by default
#   safety    a failed test gets no second run
#   alone     in the gate, which runs two parts at a time, nothing runs beside it
#   shards    how many parts `make test-all` makes of it, with a share of the tests each
#   args      arguments of the test programs; gate_args are those in the gate
#   fuzz      each fuzz target runs for a minute, and no test
#   module    the directory of another module

part "broker" {
  purpose  = "units of the broker"
  gate     = "short"
  packages = ["./broker/..."]
  race     = true
  jobs     = 2
}

part "sdk" {
  purpose  = "units of the SDK"
  gate     = "short"
  packages = ["./sdk/..."]
  except   = ["./sdk/providertest"]
  race     = true
  jobs     = 2
}

part "plugins" {
  purpose  = "units of the plugins"
  gate     = "short"
  packages = ["./plugins/..."]
  except = [
    "./plugins/aliyun/internal/provider", "./plugins/daytona/internal/provider", "./plugins/e2b/internal/provider",
    "./plugins/kubernetes/internal/provider/oncluster", "./plugins/selfmanaged/internal/provider",
  ]
  race = true
  jobs = 2
}

part "programs" {
  purpose  = "the command line, the configuration, the documents, the examples, the gate"
  gate     = "short"
  packages = ["./cmd/...", "./config/...", "./docs/...", "./examples/...", "./e2e/gate", "./e2e/npm"]
  jobs     = 2
}

part "providertest" {
  purpose  = "the conformance suite finds each broken provider"
  gate     = "short"
  packages = ["./sdk/providertest"]
  shards   = 2
}

part "self_managed" {
  purpose  = "the provider of this machine, on gVisor and Docker"
  gate     = "short"
  packages = ["./plugins/selfmanaged/internal/provider"]
  with     = "docker"
  shards   = 5
}

part "e2b" {
  purpose  = "the provider of E2B keeps the contract, with the kit of remote sandboxes"
  gate     = "short"
  packages = ["./plugins/e2b/internal/provider"]
  shards   = 2
}

part "daytona" {
  purpose  = "the provider of Daytona keeps the contract"
  gate     = "short"
  packages = ["./plugins/daytona/internal/provider"]
  shards   = 2
}

part "aliyun" {
  purpose  = "the provider of Aliyun AgentRun keeps the contract"
  gate     = "short"
  packages = ["./plugins/aliyun/internal/provider"]
  shards   = 2
}

part "chaos" {
  purpose       = "brokers and plugins are killed between any two steps; nothing is lost or doubled"
  gate          = "short"
  packages      = ["./e2e/chaos"]
  skip          = "OverKubernetes"
  parallel      = 4
  alone         = true
  safety        = true
  gate_args     = ["-seed", "1"]
  race_programs = true
}

part "chaos-postgres" {
  purpose  = "the same, with the state in PostgreSQL"
  variant  = "postgres"
  packages = ["./e2e/chaos"]
  skip     = "OverKubernetes|KillsOverDaytona"
  with     = "postgres"
  parallel = 4
  safety   = true
}

part "hostileprovider" {
  purpose  = "a hostile plugin harms its own calls and nothing else"
  gate     = "short"
  packages = ["./e2e/hostileprovider"]
  parallel = 4
  alone    = true
  safety   = true
}

part "attackers" {
  purpose  = "requests of attackers, and what they may not change"
  gate     = "short"
  packages = ["./e2e/attackers", "./e2e/canaries"]
  safety   = true
}

part "corpus" {
  purpose  = "hostile programs in gVisor change nothing outside"
  gate     = "short"
  packages = ["./e2e/hostile"]
  with     = "docker"
  alone    = true
  safety   = true
}

part "e2e" {
  purpose  = "the real binaries, seen by their users"
  gate     = "short"
  packages = ["./e2e"]
  skip     = "Kubernetes"
  with     = "docker"
  shards   = 4
}

part "e2e-postgres" {
  purpose  = "what survives a kill, with the state in PostgreSQL"
  variant  = "postgres"
  packages = ["./e2e"]
  tests    = "Killing|Outlives|OwnerIsTold|KeyHolds|Hundreds|AStopLets"
  skip     = "Kubernetes"
  with     = "postgres"
}

part "rest" {
  purpose       = "settings that change under load, the command line, the tools of the tests"
  gate          = "short"
  packages      = ["./e2e/soak", "./e2e/commandline", "./e2e/bench", "./e2e/scratch", "./e2e/transcript", "./e2e/chaos/cloudplugin"]
  race_programs = true
}

part "nemesis" {
  purpose  = "five brokers on one database, harm to all of it, and the histories checked"
  gate     = "short"
  packages = ["./e2e/nemesis/..."]
  alone    = true
  safety   = true
}

part "door-e2b" {
  purpose       = "E2B's published SDKs at their door"
  gate          = "short"
  packages      = ["./e2e/frontdoor/e2b"]
  race_programs = true
}

part "door-opensandbox" {
  purpose       = "OpenSandbox's published SDK at its door"
  gate          = "short"
  packages      = ["./e2e/frontdoor/opensandbox"]
  race_programs = true
}

part "door-ragflow" {
  purpose       = "RAGFlow's client and security cases at their door"
  gate          = "short"
  packages      = ["./e2e/frontdoor/ragflow"]
  race_programs = true
}

part "door-deerflow" {
  purpose       = "DeerFlow's client at its door"
  gate          = "short"
  packages      = ["./e2e/frontdoor/deerflow"]
  race_programs = true
}

part "door-mcp" {
  purpose       = "published MCP clients at their door, and one agent through all doors"
  gate          = "short"
  packages      = ["./e2e/frontdoor/mcp", "./e2e/frontdoor/agents"]
  race_programs = true
}

part "clients" {
  purpose  = "browsers, proxies, quick starts, Daytona's published SDK"
  packages = ["./e2e/browser", "./e2e/console", "./e2e/daytona", "./e2e/proxies", "./e2e/quickstart"]
}

part "conformance" {
  purpose  = "the built plugins keep the contract"
  packages = ["./e2e/conformance"]
  with     = "docker"
}

part "live" {
  purpose  = "the run against a real service, and the tutorial"
  packages = ["./e2e/live", "./e2e/tutorial"]
}

part "example" {
  purpose = "the example of a provider, a module of its own"
  module  = "examples/bubblewrap-provider"
}

part "release" {
  purpose = "the programs that make a release"
  module  = "cmd/release"
}

part "installed" {
  purpose  = "packages and images in a Debian of their own"
  packages = ["./e2e/packages/..."]
  make     = ["own-runsc", "debian"]
  with     = "docker"
}

part "cluster" {
  purpose  = "the provider of Kubernetes on a real cluster"
  packages = ["./e2e/cluster/...", "./plugins/kubernetes/internal/provider/oncluster"]
  with     = "cluster"
  make     = ["cluster"]
}

part "cluster-e2e" {
  purpose  = "the broker over a real cluster"
  variant  = "cluster"
  packages = ["./e2e", "./e2e/chaos"]
  tests    = "Kubernetes"
  with     = "cluster"
  make     = ["cluster"]
}

part "fuzz" {
  purpose  = "each parser reads anything, for a minute"
  packages = ["./..."]
  variant  = "fuzz"
  fuzz     = true
  shards   = 11
}
