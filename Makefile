# `make` or `make help` lists what there is.

GO       ?= go
FUZZTIME ?= 20s
CHECKS   ?= 20000
SIMULATIONS ?= 10000
SEEDS    ?= 100000
LINT_VERSION := v2.15.0
GOBIN    := $(shell $(GO) env GOPATH)/bin
LINT     := $(GOBIN)/golangci-lint

# The race detector needs cgo and a C compiler; go says 0 where there is none.
RACE := $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)

.DEFAULT_GOAL := help
.PHONY: tools help build demo scenarios test test-race test-norace test-interop test-replicas faults interop-all test-kubernetes test-kubernetes-short bench-kubernetes interop-istio crds console console-check test-console bench-console licenses release release-check lint fmt reference fuzz soak bench attacks steady group-cost streams widefleet envoy-loop duel fleets figures picture microbench mutants cover clean

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/isobar
	$(GO) build -trimpath -o bin/isobar ./cmd/isobar

demo: ## run the whole loop on this machine and print the verdict (under 90 s)
	@echo "Go fetches modules and compiles first, and prints nothing meanwhile."
	$(GO) run ./cmd/isobar demo

scenarios: ## run the library of scenarios and write its table into the documentation
	$(GO) test ./cmd/isobar -count 1 -run '^TestScenarioLibrary$$' -update-scenarios
	$(GO) run ./cmd/isobar simulate examples/scenarios

# The same commit gets the same verdict each time: properties are tried on the same
# examples. `go test` alone takes new ones at each run, and soak many of them.
test test-race test-norace: export RAPID_SEED ?= 1

test: test-race test-norace ## run all tests: with the race detector, then what is too heavy for it

# Packages without goroutines and locks have nothing that the race detector could find, and
# hold the longest calculations. A test of internal/archtest keeps them so. Tests of other
# packages run their code with the race detector, too.
SEQUENTIAL := . ./dataplane ./internal/assign/... ./internal/capacity ./internal/config ./internal/config/strict \
	./internal/health ./internal/load ./internal/plan ./internal/policy ./internal/replica/group ./solver

# They begin first: each takes minutes on one processor.
LONGEST := ./internal/server ./cmd/isobar

# Many tests wait for real processes and elections: one package more than there are
# processors runs at once, and of internal/server up to four tests. The linker leaves out
# what debuggers need, which saves a third of its time for each package.
test-race: tools ## run the tests with the race detector (without where there is no C compiler)
	@test -n "$(RACE)" || echo "no C compiler: testing without the race detector; install gcc to have it"
	@sequential=$$($(GO) list $(SEQUENTIAL) | paste -sd'|' -); pkgs=$$($(GO) list $(LONGEST) ./... | grep -vxE "$$sequential"); \
	test -n "$$pkgs" || exit 1; echo "$(GO) test $(RACE) (all packages but $(SEQUENTIAL))"; \
	$(GO) test $(RACE) -ldflags=-w -timeout 20m -p $$(($$(getconf _NPROCESSORS_ONLN) + 1)) -parallel 4 $$pkgs

# Simulations, comparisons with a linear program, measurements of memory, and tests that read
# the whole repository run nothing concurrently, either. A fleet that has to settle gets too
# slow with the race detector. The files of these tests carry the build tag !race.
test-norace: tools ## run the tests that leave the race detector out
	$(GO) test -ldflags=-w -timeout 20m $(SEQUENTIAL)
	@files=$$(grep -rl --include='*_test.go' -e '^//go:build .*!race' .); \
	tests=$$(sed -nE 's/^func ((Test|Fuzz)[A-Za-z0-9_]*)\(. \*testing\.[TF]\).*/\1/p' $$files | sort -u | paste -sd'|' -); \
	sequential=$$($(GO) list $(SEQUENTIAL) | paste -sd'|' -); \
	pkgs=$$($(GO) list $$(dirname $$files | sort -u) | grep -vxE "$$sequential" | tr '\n' ' '); \
	test -n "$$pkgs" || exit 1; echo "$(GO) test -run '^($$tests)\$$' $$pkgs"; $(GO) test -ldflags=-w -timeout 20m -run "^($$tests)\$$" $$pkgs

# Programs that tests need: GLPK is the oracle of the solver's, Redis is probed by
# the checker's, promtool reads the alert rules, dnsmasq resolves names. As root on
# Debian, as in a
# container, they are installed; on your own machine that is yours to do.
tools: ## see that glpsol, redis-server, promtool and dnsmasq are there, which tests need
	@missing=; \
	command -v glpsol >/dev/null || missing="$$missing glpk-utils"; \
	command -v redis-server >/dev/null || missing="$$missing redis-server"; \
	command -v promtool >/dev/null || missing="$$missing prometheus"; \
	command -v dnsmasq >/dev/null || missing="$$missing dnsmasq-base"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing; \
	else \
		echo "the tests need$$missing (names of Debian's packages; Homebrew: glpk, redis, prometheus, dnsmasq)"; exit 1; \
	fi

test-interop: ## run the tests against clients of others, Envoy among them (needs Node, npm, curl, g++, pkg-config, libgrpc++-dev, python3-grpcio, python3 with pip, a JDK, Maven)
	@if [ -f test/interop/go.mod ]; then cd test/interop && $(GO) test -count 1 -timeout 17m -parallel 4 ./...; else echo "no test/interop"; fi

test-replicas: ## test elections and faults of groups against a real etcd of three members, built from its Go module (the first time in 3 minutes)
	cd test/replicas && $(GO) test -count 1 -timeout 9m ./...

# BEFORE is a commit of an earlier version: the last one of version 1 of the protocol between
# replicas. Where the repository lacks it, the faults that need it are left out.
BEFORE ?= 161501bb
# FAULTS is a regular expression: the faults that are played. Runs of other faults may go on
# beside it.
COUNT ?= 1
FAULTS ?=
faults: ## play every fault of a group of replicas COUNT times (1, about 4 minutes each) with real processes and a real etcd, and write the figures into docs/reference/replica-faults.md (FAULTS=regexp chooses)
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && older= && \
	if git cat-file -e '$(BEFORE)^{commit}' 2>/dev/null; then \
		git archive '$(BEFORE)' | tar -x -C "$$dir" && (cd "$$dir" && $(GO) build -o isobar ./cmd/isobar) && older="$$dir/isobar"; \
	else echo "no commit $(BEFORE) here: without an earlier version"; fi && \
	cd test/replicas && $(GO) test -count 1 -timeout 48h -v -run '^TestFaults$$' -faults.full -faults.write -faults.count $(COUNT) -faults.run '$(FAULTS)' -faults.older "$$older" .

interop-all: ## test-interop with every client in every behaviour, all versions and sizes, and write docs/reference/compatibility.md (22 minutes)
	cd test/interop && ISOBAR_INTEROP_ALL=1 $(GO) test -count 1 -timeout 2h -parallel 4 ./... -update

# The API server, the controllers and etcd come from the Go proxy, pinned by the module
# test/kubernetes/servers. The first build takes 12 minutes of CPU. KUBERNETES passes
# flags, such as -gone 10s, or -run '^TestRollout$$'. The API server is away for ten minutes twice.
KUBERNETES ?=
test-kubernetes: bin/kubernetes/etcd bin/kubernetes/kube-apiserver bin/kubernetes/controllers bin/kubernetes/helm bin/kubernetes/controller-gen ## run the tests against a real Kubernetes API server (27 minutes once it is built)
	cd test/kubernetes && $(GO) test -count 1 -timeout 60m -v . $(KUBERNETES)

# All but what is long: many Pods, ten minutes, the way of a new user.
test-kubernetes-short: bin/kubernetes/etcd bin/kubernetes/kube-apiserver bin/kubernetes/controllers bin/kubernetes/helm ## run the part of test-kubernetes that .ci/run plays: conditions, a rollout, slices, policies, permissions, the API gone, the chart
	cd test/kubernetes && $(GO) test -count 1 -timeout 8m -v -run '^Test(Conditions|Rollout|Scaling|APIGone|PolicyRules|Policies|Permissions|ChartRefuses|Chart|ChartGroup)$$' . -gone 60s

bench-kubernetes: bin/kubernetes/etcd bin/kubernetes/kube-apiserver bin/kubernetes/controllers bin/kubernetes/helm ## measure how fast a written EndpointSlice reaches a client, with 10,000 endpoints in 1,000 Services, and what it costs (a minute)
	cd test/kubernetes && $(GO) test -count 1 -timeout 20m -v -run '^TestSpeed$$' .

# istiod and its custom resources come from the Go proxy, too: 10 minutes of CPU at the first time.
ISTIO := istio.io/istio@v0.0.0-20260827124520-eed52ebb66ad
interop-istio: bin/kubernetes/etcd bin/kubernetes/kube-apiserver bin/kubernetes/controllers bin/kubernetes/helm bin/kubernetes/pilot-discovery ## do what docs/how-to/beside-istio.md says, with a real istiod and a real Envoy (a minute once they are built)
	cp -f "$$($(GO) mod download -json $(ISTIO) | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p')/manifests/charts/base/files/crd-all.gen.yaml" bin/kubernetes/istio-crds.yaml
	cd test/kubernetes && $(GO) test -count 1 -timeout 20m -tags istio -v -run '^TestIstio$$' .

bin/kubernetes/pilot-discovery:
	@mkdir -p bin/kubernetes
	GOBIN=$(CURDIR)/bin/kubernetes CGO_ENABLED=0 $(GO) install -trimpath $(dir $(ISTIO))istio/pilot/cmd/pilot-discovery@$(lastword $(subst @, ,$(ISTIO)))

# The tests run in a network namespace of their own, in which nothing can be downloaded.
bin/kubernetes/controller-gen:
	@mkdir -p bin/kubernetes
	GOBIN=$(CURDIR)/bin/kubernetes $(GO) install $(CONTROLLER_GEN)

# These are built with the flags of the tests, and of one module, whose dependencies have the
# versions of Isobar's: each package that several need is compiled once.
bin/kubernetes/helm: test/kubernetes/servers/go.mod
	@mkdir -p bin/kubernetes
	cd test/kubernetes/servers && $(GO) build -ldflags '-s -w' -o ../../../$@ helm.sh/helm/v4/cmd/helm && touch ../../../$@

bin/kubernetes/etcd: test/kubernetes/servers/go.mod
	@mkdir -p bin/kubernetes
	cd test/kubernetes/servers && $(GO) build -ldflags '-s -w' -o ../../../$@ go.etcd.io/etcd/server/v3 && touch ../../../$@

# The API server tells its version, which charts ask for.
KUBERNETES_VERSION := -X k8s.io/component-base/version.gitVersion=v1.37.2 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37
bin/kubernetes/kube-apiserver: test/kubernetes/servers/go.mod
	@mkdir -p bin/kubernetes
	cd test/kubernetes/servers && $(GO) build -ldflags '-s -w $(KUBERNETES_VERSION)' -o ../../../$@ k8s.io/kubernetes/cmd/kube-apiserver && touch ../../../$@

bin/kubernetes/controllers: test/kubernetes/servers/go.mod test/kubernetes/servers/controllers/main.go
	@mkdir -p bin/kubernetes
	cd test/kubernetes/servers && $(GO) build -ldflags '-s -w' -o ../../../$@ ./controllers && touch ../../../$@

# What npm installs is of the lock file, to the byte. The console's built files are
# committed, so that Go alone builds the program.
console/node_modules: console/package-lock.json
	cd console && npm ci --no-progress && touch node_modules

console: console/node_modules ## build the web console into internal/console/dist (needs Node 20.19 or newer, and npm)
	cd console && npm run build

console-check: console/node_modules ## check the types of the web console and run the tests of its parts
	cd console && npm run check && npm test

# CHROMIUM names another browser than Debian's.
test-console: console/node_modules ## drive the web console in Chromium against a real server with a real fleet; screenshots go to console/screenshots
	$(GO) build -o bin/console-fleet ./test/console
	cd console && FLEET=../bin/console-fleet npm run browser

# Two cores with nothing else to do. SERVICES=1000 and others change the size.
bench-console: build console/node_modules ## measure what 50 open consoles cost a server of 10,000 services, and how the page feels (20 minutes)
	cd console && ISOBAR=../bin/isobar node test/bench.mjs

licenses: console/node_modules ## collect the licences of all that the program holds
	$(GO) run ./test/licenses > licenses.tmp && mv licenses.tmp internal/console/licenses.txt

# controller-gen comes from the Go proxy, in the version below.
CONTROLLER_GEN := sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0
crds: ## generate the CRDs in deploy/kubernetes/crds, and the code of their types, from internal/discovery/kubernetes/v1alpha1
	$(GO) run $(CONTROLLER_GEN) object crd paths=./internal/discovery/kubernetes/v1alpha1 \
		output:crd:dir=deploy/kubernetes/crds output:object:dir=internal/discovery/kubernetes/v1alpha1
	@for file in deploy/kubernetes/crds/*.yaml; do \
		{ echo '# Generated from internal/discovery/kubernetes/v1alpha1 by `make crds`. Do not edit.'; sed '1{/^---$$/d}' $$file; } > $$file.new && mv $$file.new $$file; \
	done
	cp deploy/kubernetes/crds/*.yaml deploy/helm/isobar/files/crds/

# A release of any commit: VERSION names it. Both need the modules of the sources and of
# release/go.mod in the module cache, and no network.
VERSION ?= v0.0.0-dev
COMMIT = $(shell git rev-parse HEAD)
COMMITTED = $(shell git log -1 --format=%ct)
RELEASE = cd release && GOPROXY=off $(GO) run . -version $(VERSION) -commit $(COMMIT) -date $(COMMITTED)
release: ## make the files of a release in dist: archives, packages, bills of materials, the chart and the image
	$(RELEASE) -source .. -out ../dist make

# Two clones in directories of different names have to give the same files. The first line
# downloads the modules that the cache lacks; all others have no network.
release-check: ## make a release of the last commit from two fresh clones, compare them, and check every file (needs groff, dpkg-deb)
	@for os in linux darwin; do GOOS=$$os $(GO) list -deps ./cmd/isobar >/dev/null || exit 1; done; cd release && $(GO) list -deps . >/dev/null
	@work=$$(mktemp -d) && trap 'chmod -R u+w "$$work"; rm -rf "$$work"' EXIT && \
	git clone -q . "$$work/first" && git clone -q . "$$work/second clone" && \
	(cd "$$work/first" && $(MAKE) --no-print-directory release VERSION=$(VERSION)) && \
	(cd "$$work/second clone" && $(MAKE) --no-print-directory release VERSION=$(VERSION)) && \
	cmp "$$work/first/dist/checksums.txt" "$$work/second clone/dist/checksums.txt" && echo "ok   both clones give the same files" && \
	(cd "$$work/first" && $(RELEASE) -source .. -out ../dist check)

lint: $(LINT) ## check the code of all modules, and the direction of its imports
	for module in . bench release test/interop test/replicas test/kubernetes; do (cd $$module && $(LINT) run ./...) || exit 1; done

$(LINT):
	$(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)

fmt: ## format the code
	gofmt -w .

# The tests fail where the documents differ from the code; what a metric means, and
# what to do about a refusal, is edited in the documents and stays.
reference: ## write the references of metrics, of refusals and of the admin API into the documentation from the code
	$(GO) test ./internal/server -count 1 -run '^TestMetricReference$$' -update-metrics
	$(GO) test ./internal/archtest -count 1 -run '^TestEveryRefusalIsListed$$' -update
	$(GO) test ./test/openapi -count 1 -run '^TestDocumentIsTheCode$$' -update

# "go test -fuzz" counts what is covered in all dependencies too. The generated code
# of the protocols is so large that it then makes 20 executions a second instead of
# 20,000: so only this module counts. TMPDIR is for state files, in memory where it
# can be: each of them is synced to disk.
fuzz: ## run every fuzz target for FUZZTIME (20s; FUZZTIME=10000000x is so many executions of each)
	@mkdir -p bin/fuzz; module=$$($(GO) list -m); cache=$$($(GO) env GOCACHE)/fuzz; \
	if [ -w /dev/shm ]; then export TMPDIR=/dev/shm; fi; \
	grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u | while read -r dir; do \
		binary=$(CURDIR)/bin/fuzz/$$(echo "$$dir" | tr -c 'a-z0-9\n' _).test; \
		$(GO) test -c -gcflags "$$module/...=-d=libfuzzer" -o "$$binary" $$dir || exit 1; \
		grep -ho '^func Fuzz[A-Za-z0-9_]*' $$dir/*_test.go | cut -c6- | while read -r target; do \
			echo "== $$dir $$target"; \
			(cd $$dir && "$$binary" -test.run '^$$' -test.fuzz "^$$target\$$" -test.fuzztime $(FUZZTIME) \
				-test.fuzzminimizetime 5x -test.fuzzcachedir "$$cache/$$($(GO) list .)") || exit 1; \
		done || exit 1; \
	done

soak: tools ## run every property CHECKS times (20000) instead of 100, 500 call graphs against GLPK, SIMULATIONS (10000) large fleets, SEEDS (100000) groups of replicas, 200 kills of the server
	ISOBAR_CRASHES=200 $(GO) test -count 1 -run '^TestCrashes$$' ./cmd/isobar
	$(GO) test -timeout 2h -count 1 -v -run 'TestCallsAgainstLP|TestObservedAgainstLP' ./solver -lp.problems=500
	@grep -rl --include='*_test.go' '"pgregory.net/rapid"' . | xargs -r -n1 dirname | sort -u | while read -r dir; do \
		$(GO) test -timeout 2h -count 1 $$dir -rapid.checks=$(CHECKS) || exit 1; \
	done
	$(GO) test -timeout 6h -count 1 ./internal/sim -run TestSimulations -simulations $(SIMULATIONS) -large
	$(GO) test -timeout 6h -count 1 ./internal/replica/group -run TestGroups -replicas.seeds $(SEEDS)

# Servers and clients are processes of one core each: two cores, and nothing else
# that is busy, or the times (not the proportions) mean little.
bench: build ## compare with go-control-plane and the floor (12 minutes); bench.txt is for benchstat
	cd bench && $(GO) build -o ../bin/bench .
	bin/bench -isobar bin/isobar > bench.txt
	cd bench && $(GO) test -run '^$$' -bench . -benchtime 3x ./loop >> ../bench.txt
	cd bench && $(GO) test -run '^$$' -bench . -benchtime 2s ./health >> ../bench.txt

# 13 minutes, and two cores with nothing else to do: one for the server, one for
# the fleet. DURATION shortens what is measured, STEADY passes further flags.
DURATION ?= 10m
steady: build ## hold 5,000 clients, 1,000 services and 100 checkers for DURATION (10m): processor, memory, reconnect
	cd bench && $(GO) build -trimpath -o ../bin/steady ./steady
	bin/steady -isobar bin/isobar -duration $(DURATION) $(STEADY)

# The measured server has processor 1, everything else processor 0, which a process of the
# lowest priority keeps busy: the same work then takes the same time in both runs, although
# two processors of one core slow each other.
GROUP_COST := -cpu 1 -clients 300 -connections 10 -duration 60s -warmup 50s
group-cost: build ## compare the processor time of a single server with that of the leader of three replicas, for the same 300 clients (5 minutes, two processors with nothing else to do)
	cd bench && $(GO) build -trimpath -o ../bin/steady ./steady
	@nice -n 19 taskset -c 0 sh -c 'while :; do :; done' & busy=$$!; trap 'kill $$busy' EXIT; \
	for flags in '' '-replicas 3 -at leader'; do \
		echo "taskset -c 0 bin/steady -isobar bin/isobar $(GROUP_COST) $$flags"; \
		taskset -c 0 bin/steady -isobar bin/isobar $(GROUP_COST) $$flags || true; \
	done

attacks: build ## let clients that misbehave loose on isobar serve, one kind after the other: how much memory and processor time they take (22 minutes)
	cd bench && $(GO) build -trimpath -o ../bin/attacks ./attacks
	bin/attacks -isobar bin/isobar $(ATTACKS)

# 20,000 streams with one name each; STREAMS passes further flags, such as -run Envoys.
streams: build ## let fleets open a stream for each service, 20,000 in all (3 minutes)
	cd bench && $(GO) build -trimpath -o ../bin/streams ./streams
	bin/streams -isobar bin/isobar $(STREAMS)

widefleet: build ## simulate 1,000 services in 200 localities for a virtual hour: how much faster than real time
	cd bench && $(GO) build -trimpath -o ../bin/widefleet ./widefleet
	bin/widefleet -isobar bin/isobar $(WIDEFLEET)

# Needs Linux on x86-64, and python3 with pip for the Envoys. RUN chooses scenarios:
# make envoy-loop RUN='^refuse$$'; LOOP passes further flags, such as -seed 7.
RUN ?=
envoy-loop: build ## play faults to real Envoys with Isobar, and beside them to Envoys alone (16 minutes; RUN=regexp chooses)
	cd bench && $(GO) build -trimpath -o ../bin/envoyloop ./envoyloop
	bin/envoyloop -isobar bin/isobar -run '$(RUN)' -json envoy-loop.json $(LOOP)

# Needs what envoy-loop needs. DUEL passes further flags, such as -seed 7, or -plots DIR for charts.
DUEL ?=
duel: build ## play the same events to real Envoys under seven policies at once, and to the simulator (12 minutes; RUN=regexp chooses)
	cd bench && $(GO) build -trimpath -o ../bin/duel ./duel
	bin/duel -isobar bin/isobar -run '$(RUN)' -json duel.json $(DUEL)

# FLEETS passes flags, such as -fleets 16 -seed 7, or -fleets 0 -library examples/scenarios.
FLEETS ?=
fleets: build ## simulate random fleets with faults, by capacity_trust, beside a clairvoyant (506 of each: 10 minutes of CPU)
	cd bench && $(GO) build -trimpath -o ../bin/fleets ./fleets
	bin/fleets -isobar bin/isobar $(FLEETS)

# One after the other, as each needs the machine for itself.
figures: ## what Isobar makes of wrong capacities and faults: 506 random fleets, the scenario library, real Envoys, the duel (50 minutes)
	$(MAKE) fleets FLEETS='-library examples/scenarios $(FLEETS)'
	$(MAKE) envoy-loop
	$(MAKE) duel

picture: build ## run the demo on a machine that does nothing else, and draw its latencies and failures into docs/demo.svg (90 s)
	cd bench && $(GO) build -trimpath -o ../bin/picture ./picture
	bin/picture -isobar bin/isobar -o docs/demo.svg

microbench: ## run the benchmarks of the packages; compare two runs with benchstat
	$(GO) test -run '^$$' -bench . -benchmem -count 6 ./...

# A bug that survives is a test that is missing. MUTANTS chooses by name: make mutants MUTANTS='^solver-'
MUTANTS ?=
mutants: tools ## try each bug of test/mutants/bugs: do its tests notice? (an hour; MUTANTS=regexp chooses)
	$(GO) run ./test/mutants -run '$(MUTANTS)'

cover: ## write coverage.html and print the total
	$(GO) test -coverpkg ./... -coverprofile coverage.out ./...
	$(GO) tool cover -html coverage.out -o coverage.html
	$(GO) tool cover -func coverage.out | tail -n 1

clean: ## remove what the other targets made
	rm -rf bin dist bench.txt envoy-loop.json duel.json coverage.out coverage.html
