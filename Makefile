# Two targets do everything: `make demo` and `make test`. `make help` lists the rest.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w

# Pinned tools, built from source into .cache.
RUNSC_VERSION         := v0.0.0-20260905035102-160fafc42237
GOLANGCI_VERSION      := v2.15.0
BUF_VERSION           := v1.73.0
GOTESTSUM_VERSION     := v1.13.0
PROTOC_GEN_GO         := v1.36.12
PROTOC_GEN_GO_GRPC    := v1.6.2
AGENT_SANDBOX_VERSION := $(shell sed -n 's|.*sigs.k8s.io/agent-sandbox \(v[^ ]*\).*|\1|p' e2e/cluster/agentsandbox/go.mod)
KUBERNETES_VERSION    := $(shell sed -n 's|^\tk8s.io/kubernetes ||p' e2e/cluster/kubernetes/go.mod)
TOOLS := $(CURDIR)/.cache/tools

# A module of its own, as that of a third party would be.
EXAMPLE := examples/bubblewrap-provider

# A program with the race detector waits a second before it exits, for what it may still
# find; tests start hundreds.
export GORACE := atexit_sleep_ms=20

# Tests start Python some thousand times. A python3 that is a version manager's shim takes
# several times as long to start as the interpreter, which is put before it.
PYTHON_DIR := $(shell python3 -c 'import os, sys; print(os.path.dirname(sys.executable))' 2>/dev/null)
ifneq ($(PYTHON_DIR),$(patsubst %/,%,$(dir $(shell command -v python3))))
export PATH := $(PYTHON_DIR):$(PATH)
endif

.PHONY: test-all gate stress race-programs debian help build runsc rootfs demo agents run recording test packages release images engine own-runsc cluster corpus chaos chaos-kubernetes nemesis nemesis-figures live live-clean lint console site fmt generate drift bench plots soak clean tools

help: ## show this help
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

build: ## build the broker, the guest and the plugins into bin/
	@mkdir -p bin/plugins
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS) -X main.version=$(VERSION)' -o bin/sandbox-broker ./cmd/sandbox-broker
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/sandbox-guest ./cmd/sandbox-guest
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/plugins/self_managed ./plugins/selfmanaged
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/plugins/e2b ./plugins/e2b
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/plugins/aliyun ./plugins/aliyun
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/plugins/daytona ./plugins/daytona
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/plugins/kubernetes ./plugins/kubernetes

runsc: ## build gVisor's runsc into bin/, unless one is on the PATH
	@if command -v runsc >/dev/null; then echo "using $$(command -v runsc)"; else $(MAKE) --no-print-directory own-runsc; fi

# What is released has its own, whatever is on the PATH.
own-runsc:
	@if [ -x bin/runsc ] && [ "$$(cat bin/.runsc-version 2>/dev/null)" = "$(RUNSC_VERSION)" ]; then echo "using bin/runsc"; \
	else echo "building runsc $(RUNSC_VERSION); this takes a minute or two"; \
		GOBIN=$(CURDIR)/bin CGO_ENABLED=0 go install -trimpath -ldflags '$(LDFLAGS) -X gvisor.dev/gvisor/runsc/version.version=$(RUNSC_VERSION)' gvisor.dev/gvisor/runsc@$(RUNSC_VERSION); \
		echo $(RUNSC_VERSION) > bin/.runsc-version; fi
	@mkdir -p bin/gvisor-bin; ln -sfn ../runsc bin/gvisor-bin/gvisor_sentry
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/gvisor-bin/gvisor-sentry-prewarmer ./cmd/gvisor-sentry-prewarmer

# Files of a release have the time of the last commit, and programs do not say whether all was
# committed: the same sources and the same Go make the same bytes.
RELEASE := cmd/release
RELEASED = cd $(RELEASE) && go run . -version '$(VERSION)'
packages release: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
packages release: export GOFLAGS += -buildvcs=false

packages: build own-runsc ## Debian packages of the broker and each plugin, into dist/
	@rm -f dist/*.deb
	@$(RELEASED) packages
	@ls -1 dist/*.deb

release: engine build own-runsc ## packages, a tarball, what is in each, checksums and the images, into dist/
	@rm -rf dist
	@$(RELEASED) all
	@(cd dist && sha256sum --quiet --check SHA256SUMS && ls -1)
	@$(MAKE) --no-print-directory images

engine:
	@docker version >/dev/null 2>&1 || { echo "images take a Docker Engine, and none answers; make packages needs none" >&2; exit 1; }

images: engine ## the images of dist/images, of make release, for the Docker Engine that answers
	@for image in broker self-managed; do \
		docker build --quiet --tag "sandbox-broker/$$image:$(VERSION)" --tag "sandbox-broker/$$image:latest" $(IMAGE_OPTIONS) "dist/images/$$image"; done

rootfs: ## build a root file system for sandboxes into .cache/rootfs, and a Docker image of it (as root)
	@plugins/selfmanaged/rootfs/build .cache/rootfs

# What .ci/with-cluster starts, each kept by what it is made of: Kubernetes is 2,500 packages.
# Clients ask an API server for its version, which a plain build lacks.
CLUSTER       := .cache/cluster
made_of        = $(shell cat $(1)/*.go $(1)/go.* 2>/dev/null | sha256sum | cut -c1-12)
KUBERNETES    := $(CLUSTER)/kubernetes-$(KUBERNETES_VERSION)-$(call made_of,e2e/cluster/kubernetes)
AGENT_SANDBOX := $(CLUSTER)/agent-sandbox-$(AGENT_SANDBOX_VERSION)-$(call made_of,e2e/cluster/agentsandbox)
KUBE_ROUTER   := $(CLUSTER)/kube-router-$(call made_of,e2e/cluster/kuberouter)
SHIM          := $(CLUSTER)/shim-$(call made_of,e2e/cluster/gvisor)
KUBERNETES_LDFLAGS = $(LDFLAGS) -X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION) \
	-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(KUBERNETES_VERSION)))

cluster: runsc $(KUBERNETES) $(SHIM) $(AGENT_SANDBOX) $(KUBE_ROUTER)
	@ln -sfn $(notdir $(KUBERNETES)) $(CLUSTER)/kubernetes
	@ln -sfn $(notdir $(SHIM)) $(CLUSTER)/shim
	@ln -sfn $(notdir $(AGENT_SANDBOX)) $(CLUSTER)/agent-sandbox
	@ln -sfn $(notdir $(KUBE_ROUTER)) $(CLUSTER)/kube-router
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(CLUSTER)/pause/pause ./e2e/cluster/pause

$(KUBERNETES):
	@echo "building Kubernetes $(KUBERNETES_VERSION); this takes some minutes, once"
	@rm -f $(CLUSTER)/kubernetes-*
	@cd e2e/cluster/kubernetes && CGO_ENABLED=0 go build -trimpath -ldflags '$(KUBERNETES_LDFLAGS)' -o $(CURDIR)/$@ .

$(KUBE_ROUTER):
	@echo "building kube-router"
	@rm -f $(CLUSTER)/kube-router-*
	@cd e2e/cluster/kuberouter && CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(CURDIR)/$@ github.com/cloudnativelabs/kube-router/v2/cmd/kube-router

# The controller of agent-sandbox, beside its resource definitions.
$(AGENT_SANDBOX):
	@echo "building agent-sandbox $(AGENT_SANDBOX_VERSION)"
	@rm -rf $(CLUSTER)/agent-sandbox-*
	@mkdir -p $@.part
	@cd e2e/cluster/agentsandbox && CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(CURDIR)/$@.part/agent-sandbox-controller sigs.k8s.io/agent-sandbox/cmd/agent-sandbox-controller
	@cd e2e/cluster/agentsandbox && cp -r --no-preserve=mode "$$(go list -m -f '{{.Dir}}' sigs.k8s.io/agent-sandbox)/k8s/crds" $(CURDIR)/$@.part/crds
	@mv $@.part $@

# The shim stops where it may not make itself less likely to be killed for want of memory;
# that is no reason here.
SHIM_PRIVILEGE = if err := sys.SetOOMScore(cmd.Process.Pid, oomScoreMax); err != nil

$(SHIM):
	@rm -f $(CLUSTER)/shim-*
	@source=$$(mktemp -d) && trap 'rm -rf "$$source"' EXIT && cp e2e/cluster/gvisor/go.* "$$source" && cd "$$source" && go mod vendor && \
	manager=vendor/gvisor.dev/gvisor/pkg/shim/v1/manager.go && grep -qF '$(SHIM_PRIVILEGE) {' $$manager && \
	sed -i 's/$(SHIM_PRIVILEGE) {/$(SHIM_PRIVILEGE) \&\& !os.IsPermission(err) {/' $$manager && \
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(CURDIR)/$@ gvisor.dev/gvisor/shim

demo: build runsc ## build all, run code in real gVisor sandboxes through REST, clean up
	@go run ./examples/demo

agents: build runsc ## one agent by four clients (REST, E2B, OpenSandbox, MCP), which must come to the same
	go test ./e2e/frontdoor/agents -count=1 -v

run: build runsc ## build all and serve sandbox.hcl until ^C
	@bin/sandbox-broker serve --config sandbox.hcl

recording: build runsc ## record the command line with a real broker, into docs/
	@go run ./e2e/recording

test: lint gate ## the gate: format, vet, lint, generated files, and a share of each suite on the real binaries

# The parts of the tests are in .ci/parts.hcl. The gate runs one after the other, and says at the end
# what failed. CI sets GATE_LOGS.
gate: build runsc tools ## only the tests of the gate, without lint
	@go run ./e2e/gate -logs '$(or $(GATE_LOGS),$(CURDIR)/.cache/gate)'

# PART names parts, with spaces between them; LIST=1 lists them; RESUME=1 leaves out those that were
# green for this commit.
PART   ?=
LIST   ?=
RESUME ?=
test-all: $(if $(PART)$(LIST),,lint) build runsc tools ## everything, in parts (PART='corpus e2e-2', LIST=1, RESUME=1; as root, some hours)
	@go run ./e2e/gate -all $(if $(PART),-part '$(PART)') $(if $(LIST),-list) $(if $(RESUME),-resume)

# N times one test, beside a busy loop for each of two processors: T=TestName IN=./broker/instance N=50
T  ?= .
IN ?= ./...
N  ?= 50
stress: build runsc
	@while :; do :; done & one=$$!; while :; do :; done & two=$$!; trap 'kill $$one $$two' EXIT; \
	go test -vet=off -timeout 12h -failfast -run '$(T)' -count $(N) $(IN)

# The guest has no use for the detector in its sandbox, and runs where there is no C library.
race-programs: build
	@mkdir -p bin/race/plugins
	go build -race -o bin/race/sandbox-broker ./cmd/sandbox-broker
	for plugin in self_managed:selfmanaged e2b:e2b aliyun:aliyun daytona:daytona kubernetes:kubernetes; do \
		go build -race -o "bin/race/plugins/$${plugin%:*}" "./plugins/$${plugin#*:}"; done
	ln -sf ../sandbox-guest ../runsc ../gvisor-bin bin/race/

debian: ## the Debian that packages are installed in, into .cache/debian (as root)
	@e2e/packages/debian .cache/debian

chaos-kubernetes: build cluster ## kill broker and plugin at random over a real cluster (KILLS=300 SEED=1)
	@go test -count=1 -run '^$$' ./e2e/chaos >/dev/null
	.ci/with-cluster go test -timeout 12h -count=1 -v -run OverKubernetes ./e2e/chaos -args -kills $(KILLS) -seed $(SEED)

corpus: build runsc ## only the hostile programs, all of them on every runtime that is there
	go test -vet=off -timeout 20m -count=1 -parallel 4 -v ./e2e/hostile -args -all | grep -vE '^(=== |PASS$$| *--- PASS)'

# How often `make chaos` kills, 0 for a short run, and by which draw: SEED=0 draws one
# and prints it.
KILLS ?= 0
SEED  ?= 0

chaos: ## kill broker and plugins at random, and check what is left (KILLS=1000 SEED=1)
	go test ./e2e/chaos/... -count=1 -timeout 12h -v -args -kills $(KILLS) -seed $(SEED)

FAULTS ?= 0

nemesis: ## five brokers on a database, harm to all of it, and the histories checked (FAULTS=1000 SEED=1)
	go test ./e2e/nemesis -count=1 -timeout 12h -v -run FiveBrokers -args -faults $(FAULTS) -seed $(SEED)

nemesis-figures: build ## one and five brokers on a database beside one on a file
	go test ./e2e/nemesis -count=1 -v -run Figures -args -figures

# What a live run may take: PROVIDER=e2b, daytona or aliyun, MINUTES, SPEND in the currency of its
# price, PRICE of a second of a sandbox (0 for what the plugin names, or a guess), CASES by
# name.
PROVIDER ?=
MINUTES  ?= 20
SPEND    ?= 1.00
PRICE    ?= 0
CASES    ?= .

live: build ## the suite against a real service, with your key (PROVIDER=e2b|daytona|aliyun MINUTES=20 SPEND=1.00)
	@go build -trimpath -o bin/live ./e2e/live
	@bin/live -provider '$(PROVIDER)' -minutes '$(MINUTES)' -spend '$(SPEND)' -price '$(PRICE)' -cases '$(CASES)'

live-clean: build ## remove what live runs have left, also killed ones (PROVIDER=e2b|daytona|aliyun)
	@go build -trimpath -o bin/live ./e2e/live
	@bin/live -provider '$(PROVIDER)' -clean

lint: tools ## format, vet, static analysis, drift of generated files
	go vet -tags live $$(grep -rl '^//go:build live' --include='*.go' plugins | xargs -n 1 dirname | sort -u | sed 's|^|./|')
	$(TOOLS)/golangci-lint run
	cd $(EXAMPLE) && $(TOOLS)/golangci-lint run
	cd $(RELEASE) && $(TOOLS)/golangci-lint run
	$(TOOLS)/buf lint
	@$(MAKE) --no-print-directory drift

fmt: tools ## format the code
	$(TOOLS)/golangci-lint fmt
	cd $(EXAMPLE) && $(TOOLS)/golangci-lint fmt
	cd $(RELEASE) && $(TOOLS)/golangci-lint fmt

generate: tools ## generate Go from the .proto files
	PATH=$(TOOLS):$$PATH $(TOOLS)/buf generate

drift: tools
	@out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && \
	PATH=$(TOOLS):$$PATH $(TOOLS)/buf generate -o "$$out" && \
	for f in $$(cd "$$out" && find . -name '*.pb.go'); do \
		cmp "$$out/$$f" "$$f" || { echo "$$f is not what its .proto generates: run make generate"; exit 1; }; done

bench: build runsc ## figures of the whole system, side by side in one run
	@go run ./e2e/bench

console: ## build the files of the admin page anew from broker/console/web, with npm
	cd broker/console/web && npm ci --ignore-scripts --no-audit --no-fund && npx tsc --noEmit && node build.mjs ../assets

# SOURCE=https://.../blob/main/ has links to files of the repository lead there; without it the
# site shows these files itself.
SOURCE ?=

site: ## the docs as static pages in .cache/site, to be opened there or served by anything
	@go run ./docs/site/build -source '$(SOURCE)' .cache/site
	@echo "open .cache/site/index.html"

plots: build runsc ## plots of latency by load, into docs/
	@go run ./e2e/bench -run '^$$' -plots docs

soak: build runsc ## 2,000 changes of the settings under load, half of them wrong, with figures
	go test ./e2e/soak -count=1 -v -timeout 3h -reloads 2000 -saves 200

tools: $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION) $(TOOLS)/gotestsum-$(GOTESTSUM_VERSION) $(TOOLS)/buf-$(BUF_VERSION) $(TOOLS)/protoc-gen-go-$(PROTOC_GEN_GO) $(TOOLS)/protoc-gen-go-grpc-$(PROTOC_GEN_GO_GRPC)

$(TOOLS)/golangci-lint-$(GOLANGCI_VERSION):
	GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@touch $@

$(TOOLS)/gotestsum-$(GOTESTSUM_VERSION):
	GOBIN=$(TOOLS) go install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)
	@touch $@

$(TOOLS)/buf-$(BUF_VERSION):
	GOBIN=$(TOOLS) go install github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION)
	@touch $@

$(TOOLS)/protoc-gen-go-$(PROTOC_GEN_GO):
	GOBIN=$(TOOLS) go install google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO)
	@touch $@

$(TOOLS)/protoc-gen-go-grpc-$(PROTOC_GEN_GO_GRPC):
	GOBIN=$(TOOLS) go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(PROTOC_GEN_GO_GRPC)
	@touch $@

clean: ## remove what was built
	rm -rf bin data dist .cache
