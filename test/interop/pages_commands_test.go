package interop

// clientPages are the commands of the pages on clients.
var clientPages = map[string][]pageCommand{
	"docs/how-to/grpc.md": {
		{line: "isobar bootstrap grpc --server isobar.example:18000 --cluster shop --locality us-east/b > bootstrap.json", prints: `"server_uri": "localhost:`},
		{line: "GRPC_XDS_BOOTSTRAP=bootstrap.json ./your-client     # dials xds:///checkout", prints: `"served":\{"page":5\}`, starts: true},
		{line: "isobar clients", prints: `1 of 1 client in sync, on \d streams?`},
		{line: "isobar bootstrap grpc --server isobar.example:18000 --cluster checkout --locality us-east/b --server-listeners > bootstrap.json", prints: "server_listener_resource_name_template"},
		{line: "isobar bootstrap grpc --server isobar.example:18000 --cluster checkout --locality us-east/b --listener-cert /etc/tls/cert.pem --listener-key /etc/tls/key.pem --listener-client-ca /etc/tls/ca.pem > bootstrap.json", prints: "file_watcher"},
		{line: "keytool -importcert -noprompt -alias isobar -file ca.pem -keystore trust.p12 -storetype PKCS12 -storepass changeit", prints: "added"},
		{line: "isobar bootstrap grpc --language java --server isobar.example:18000 --cluster shop --locality us-east/b --ca ca.pem > bootstrap.json", prints: `"type": "tls"`},
		{line: "java -Djavax.net.ssl.trustStore=trust.p12 -Djavax.net.ssl.trustStorePassword=changeit ...", notRun: "TestClientsTLS runs a client with these properties"},
		{line: "XdsCredentialsRegistry.getDefaultRegistry().register(new TLSFilesProvider());", notRun: "Java; TestClientsTLS has the provider of the example"},
	},
	"docs/how-to/envoy.md": {
		{line: "isobar bootstrap envoy --server isobar.example:18000 --cluster shop --locality us-east/b --listener 10000 > envoy.yaml", prints: "static_resources:"},
		{line: "envoy -c envoy.yaml", starts: true},
		{line: "curl --header 'Host: checkout' http://127.0.0.1:10000/", prints: "page$"},
		{line: "isobar bootstrap envoy --server isobar.example:18000 --cluster shop --locality us-east/b > envoy.yaml", prints: "cds_config"},
		{line: "isobar bootstrap envoy --server isobar.example:18000 --locality us-east/b --service checkout > envoy.yaml", prints: "checkout"},
	},
	"docs/how-to/beside-contour.md": {
		{line: `envoy -c /config/envoy.json --service-node "$POD_NAME" --config-yaml "$(isobar bootstrap envoy --beside --server isobar.example:18000 --cluster shop --locality us-east/b)"`, notRun: "TestBesideContour runs it, with Contour"},
	},
	"docs/how-to/beside-envoy-control-plane.md": {
		{line: "isobar bootstrap envoy --beside --server isobar.example:18000 --cluster shop --locality us-east/b", prints: "(?s)static_resources:.*name: isobar"},
	},
	"docs/how-to/beside-istio.md": {
		{line: "isobar bootstrap envoy --beside --without-node --server isobar.isobar.svc:18000 > isobar.yaml", prints: "(?s)static_resources:.*name: isobar"},
		{line: "kubectl -n shop create configmap isobar-bootstrap --from-file=custom_bootstrap.json=isobar.yaml", notRun: "no cluster runs here; TestIstio in test/kubernetes makes it"},
	},
	"docs/how-to/beside-grpc-control-plane.md": {
		{line: "isobar bootstrap grpc --beside --server isobar.example:18000 --cluster shop --locality us-east/b", prints: `"authorities"`},
		{line: "xdstp://isobar/envoy.config.cluster.v3.Cluster/checkout", notRun: "a name, no command; TestBesideGoControlPlane uses it"},
	},
	"docs/how-to/old-clients.md": {
		{line: "xds:", notRun: "a piece of configuration"},
		{line: "listen: 127.0.0.1:18000", notRun: "a piece of configuration"},
		{line: "listen_2017: 127.0.0.1:18017       # or", notRun: "a piece of configuration"},
		{line: `clients_2017: ["legacy-*"]`, notRun: "a piece of configuration"},
		{line: `curl -s 127.0.0.1:18001/v3/discovery:endpoints -d '{"node": {"id": "a", "locality": {"region": "us-east", "zone": "b"}}, "resource_names": ["checkout"]}'`, prints: `"port_value":`},
	},
	"docs/how-to/secure.md": {
		{line: "isobar_tls_certificate_expiry_seconds - time() < 7 * 86400", notRun: "a query of Prometheus; promtool reads those of the documents in internal/archtest"},
		{line: "isobar bootstrap grpc --server isobar.example:18000 --cluster shop --locality us-east/b --ca /etc/isobar/ca.crt --cert /etc/isobar/client.crt --key /etc/isobar/client.key > bootstrap.json", prints: `"certificate_file"`},
		{line: "openssl rand -hex 32 > /run/secrets/isobar-token", prints: "^[0-9a-f]{64}\n$"},
		{line: "isobar clients --admin https://isobar.example:18080 --ca ca.pem --token-file token", prints: "0 of 0 clients in sync"},
	},
}

// operatorPages are the commands of the pages for operators, and of the README.
var operatorPages = map[string][]pageCommand{
	"README.md": {
		{line: "go run ./cmd/isobar demo     # the whole loop on this machine, with a verdict; under 90 seconds, once Go has built it", notRun: "TestDemoCommand of cmd/isobar runs it"},
		{line: "make test                    # all tests; needs gcc, glpsol, redis-server, promtool and dnsmasq; on Debian as root it installs the last four", notRun: "all other tests; .ci/run runs it"},
		{line: "go build -o isobar ./cmd/isobar     # no release exists yet; other ways to install it: docs/how-to/install.md", as: `go build -C "$REPOSITORY" -o "$PWD/isobar" ./cmd/isobar && echo built`, prints: "built"},
		{line: "./isobar check -c isobar.yaml", prints: "isobar.yaml"},
		{line: "./isobar serve -c isobar.yaml", prints: "serving", starts: true},
		{line: "go run ./examples/backend -listen 127.0.0.1:50051,127.0.0.1:50052,127.0.0.1:50061 -service-time 8ms", as: `go run -C "$REPOSITORY" ./examples/backend -listen 127.0.0.1:50051,127.0.0.1:50052,127.0.0.1:50061 -service-time 8ms`, prints: "listening", starts: true},
		{line: "./isobar bootstrap grpc --cluster shop --locality us-east/b > bootstrap.json", as: "./isobar bootstrap grpc --server 127.0.0.1:18000 --cluster shop --locality us-east/b > bootstrap.json", prints: `"server_uri"`},
		{line: "GRPC_XDS_BOOTSTRAP=bootstrap.json go run ./examples/client", as: `GRPC_XDS_BOOTSTRAP="$PWD/bootstrap.json" go run -C "$REPOSITORY" ./examples/client`, prints: "127.0.0.1:50051", starts: true},
		{line: "./isobar clients", prints: "1 of 1 client in sync"},
		{line: "./isobar explain checkout --from us-east/b", prints: "us-east/b"},
	},
	"docs/how-to/capacity.md": {
		{line: "binds      limit: us-east/a is at its ceiling: 612 of 612 requests/s, because named_metrics.kv_cache is 0.85 of 0.85 at its endpoints", notRun: output},
		{line: "us-east/a: named_metrics.kv_cache 0.85 of 0.85, reached at 612/s (598 to 627), 612/s allowed, binds", notRun: output},
		{line: "us-east/a: in_flight 12.4 of 40, inconclusive: the rate hardly changes", notRun: output},
		{line: "$ isobar capacity checkout", as: "isobar capacity checkout", prints: "LOCALITY +DECLARED +PLAN +FROM REQUESTS +SINCE +WHY"},
		{line: "LOCALITY   DECLARED  PLAN    FROM REQUESTS  SINCE                 WHY", notRun: output},
		{line: "us-east/a  1000/s    1000/s  400 to 560/s   2026-03-04T05:06:07Z  212 requests in progress, 40 expected at 520/s, 24% fail", notRun: output},
		{line: "us-east/b  1000/s    1000/s  inconclusive   2026-03-04T05:01:02Z  310/s with 6.2 requests in progress is consistent with too many capacities", notRun: output},
	},
	"docs/how-to/checkers.md": {
		{line: "isobar checker --server isobar.example:18000 --ca ca.pem --locality us-east/a --node-id checker-us-east-a", prints: "msg=checking", starts: true},
		{line: "go test ./cmd/isobar -run '^$' -bench CheckerProcess -benchtime 1x", notRun: "a measurement of 10,000 endpoints"},
	},
	"docs/how-to/console.md": {
		{line: "http://127.0.0.1:18080/ui/", as: "curl --silent http://127.0.0.1:18080/ui/", prints: "<title>Isobar"},
	},
	"docs/how-to/dns.md": {
		{line: "isobar check -c isobar.yaml", prints: "isobar.yaml"},
		{line: "curl -s http://127.0.0.1:18080/v1/discovery/dns", prints: `"name":"vm-7.example"`},
	},
	"docs/how-to/drain.md": {
		{line: "isobar health set checkout 127.0.0.1:50051 draining -m 'kernel update'", prints: "draining by operator"},
		{line: "curl -X PUT -d draining 'http://127.0.0.1:18080/v1/services/checkout/endpoints/127.0.0.1:50051/health?reason=kernel+update'   # the same", prints: `"version"`},
		{line: "isobar health                                   # at the end; or curl http://127.0.0.1:18080/v1/health", prints: "127.0.0.1:50051.*draining"},
		{line: "curl http://127.0.0.1:18080/v1/services/checkout/endpoints/127.0.0.1:50051/health", prints: `"override":\{"status":"draining"`},
		{line: "isobar explain checkout --from us-east/b        # under Warnings", prints: "127.0.0.1:50051.*draining"},
		{line: "isobar health set --force checkout 127.0.0.1:50051 draining", prints: "draining by operator"},
		{line: "curl -X PUT -d draining 'http://127.0.0.1:18080/v1/services/checkout/endpoints/127.0.0.1:50051/health?force=true'", prints: `"version"`},
		{line: `curl -X POST -d '{"service": "checkout", "locality": "us-east/b", "who": "ann", "reason": "kernel update"}' http://127.0.0.1:18080/v1/drain`, prints: `"version"`},
	},
	"docs/how-to/install.md": {
		{line: "go build -trimpath -o isobar ./cmd/isobar     # one file, with server and tools", notRun: "the README has it, too"},
		{line: "sudo install isobar /usr/local/bin/", notRun: asRoot},
		{line: "sudo useradd --system --home-dir /var/lib/isobar --shell /usr/sbin/nologin isobar", notRun: asRoot},
		{line: "sudo install -D -m 0644 isobar.yaml /etc/isobar/isobar.yaml", notRun: asRoot},
		{line: "sudo install -m 0644 deploy/systemd/isobar.service /etc/systemd/system/", notRun: asRoot},
		{line: "isobar check -c /etc/isobar/isobar.yaml", prints: "isobar.yaml"},
		{line: "sudo systemctl daemon-reload", notRun: asRoot},
		{line: "sudo systemctl enable --now isobar", notRun: asRoot},
		{line: "isobar status", prints: "no problems|checkout"},
		{line: `docker build -f deploy/container/Dockerfile --build-arg COMMIT="$(git rev-parse HEAD)" -t isobar:dev .`, notRun: docker},
		{line: `docker run -d --name isobar --network host --stop-timeout 30 --read-only -v "$PWD/isobar.yaml:/etc/isobar/isobar.yaml:ro" -v isobar-state:/var/lib/isobar isobar:dev`, notRun: docker},
		{line: "helm install isobar deploy/helm/isobar --namespace isobar --create-namespace --set tls.mode=existingSecret", notRun: "no cluster runs here; test/kubernetes installs the chart with helm"},
	},
	"docs/how-to/kubernetes.md": {
		{line: "kubectl -n shop label service checkout isobar.dev/balance=true", notRun: cluster},
		{line: "kubectl get nodes -L topology.kubernetes.io/region -L topology.kubernetes.io/zone", notRun: cluster},
		{line: "isobar check -c isobar.yaml", prints: "isobar.yaml"},
		{line: "curl -s http://127.0.0.1:18080/v1/discovery/kubernetes", notRun: cluster},
		{line: "kubectl apply -f deploy/kubernetes/crds", notRun: cluster},
		{line: "kubectl apply -f examples/kubernetes/policy.yaml", notRun: cluster},
		{line: "kubectl -n shop get lbp", notRun: cluster},
		{line: "kubectl -n shop describe lbp checkout", notRun: cluster},
		{line: "isobar kubernetes analyze -c isobar.yaml", notRun: cluster},
		{line: "isobar kubernetes analyze -c isobar.yaml deploy policies", notRun: "the directories are the reader's; TestScript/kubernetes runs it on files"},
	},
	"docs/how-to/load-test.md": {
		{line: "isobar serve -c isobar.yaml &", as: "isobar serve -c isobar.yaml", prints: "serving", starts: true},
		{line: "isobar bench --clients 5000 --duration 2m --reconnect", as: "isobar bench --server isobar.example:18000 --clients 50 --duration 2s --reconnect", prints: "50 clients"},
	},
	"docs/how-to/record-and-replay.md": {
		{line: "isobar record -o monday.trace --for 10m      # from the server at --admin, or $ISOBAR_ADMIN", as: "isobar record -o monday.trace --for 3s", prints: "monday.trace"},
		{line: "isobar replay monday.trace", prints: "byte for byte"},
		{line: "cat /var/lib/isobar/trace/isobar-20261120T0[1-3]*.trace > night.trace", as: "cat /var/lib/isobar/trace/isobar-*.trace > night.trace", prints: "."},
		{line: "isobar replay night.trace", prints: "byte for byte"},
		{line: "isobar replay monday.trace -c changed.yaml", prints: "WHAT IF"},
		{line: "isobar replay monday.trace --set policy=waterfall-by-region", prints: "WHAT IF"},
		{line: "isobar replay monday.trace --set checkout:max_shed=0.2 --set checkout:ceiling=0.7", prints: "WHAT IF"},
		{line: "isobar record -o shared.trace --for 10m --anonymise             # a new recording", as: "isobar record -o shared.trace --for 3s --anonymise", prints: "shared.trace"},
		{line: "isobar record -o shared.trace --anonymise --from monday.trace   # an existing trace", as: "isobar record -o shared.trace --anonymise --from monday.trace && ls shared.trace", prints: "shared.trace"},
	},
	"docs/how-to/replicas.md": {
		{line: "isobar check -c isobar.yaml", prints: "isobar.yaml"},
		{line: "isobar replicas status", prints: "leader isobar-0"},
		{line: "isobar snapshot save alone.json", prints: "alone.json: 0 services"},
		{line: "isobar snapshot restore alone.json --prune --dry-run", prints: "nothing to change"},
		{line: "isobar snapshot restore alone.json --prune", prints: "nothing to change"},
		{line: "isobar snapshot save operators.json", prints: "operators.json: 0 services"},
		{line: "isobar snapshot restore operators.json --dry-run", prints: "nothing to change"},
		{line: "isobar snapshot restore operators.json", prints: "nothing to change"},
		{line: "sudo etcdutl snapshot restore backup.db --bump-revision 1000000000 --mark-compacted --data-dir /var/lib/etcd --name isobar-0 --initial-advertise-peer-urls https://isobar-0:2380 --initial-cluster isobar-0=https://isobar-0:2380,isobar-1=https://isobar-1:2380,isobar-2=https://isobar-2:2380", notRun: "no etcd runs here; TestFaults in test/replicas restores one"},
		{line: "sudo chown -R etcd: /var/lib/etcd", notRun: "of the host; no etcd runs here"},
		{line: "sudo etcdctl --endpoints https://isobar-0:2379 --cacert /etc/etcd/tls/ca.pem --cert /etc/etcd/tls/etcd.pem --key /etc/etcd/tls/etcd.key snapshot save backup.db", notRun: "no etcd runs here; TestFaults in test/replicas saves one"},
		{line: "sudo etcdctl --endpoints https://isobar-0:2379 --cacert /etc/etcd/tls/ca.pem --cert /etc/etcd/tls/etcd.pem --key /etc/etcd/tls/etcd.key member list", notRun: "of the host; no etcd runs here"},
		{line: "sudo etcdctl ... member remove ID", notRun: "of the host; no etcd runs here"},
		{line: "sudo etcdctl ... member add isobar-2 --peer-urls https://isobar-2:2380", notRun: "of the host; no etcd runs here"},
		{line: "make steady DURATION=1m STEADY='-replicas 3 -clients 1000 -services 200 -checkers 20 -warmup 30s'", notRun: "a benchmark of a minute and a half"},
	},
	"docs/how-to/simulate.md": {
		{line: "isobar simulate examples/scenarios                                           # all *.yaml files there", notRun: "TestScenarioLibrary of cmd/isobar runs them; it takes half a minute"},
		{line: "isobar simulate examples/scenarios/flash-crowd.yaml --policy isobar,failover # some policies only", prints: "failover"},
		{line: "isobar simulate examples/scenarios/flash-crowd.yaml --html flash.html        # a page with charts, self-contained", prints: "flash"},
		{line: "isobar simulate examples/scenarios/flash-crowd.yaml -o json                  # all figures, and one sample a tick", prints: `"policy": "isobar"`},
		{line: "isobar simulate flash.yaml --record flash.trace", as: "isobar simulate flash.yaml --record flash.trace && ls flash.trace", prints: "flash.trace"},
		{line: "isobar replay flash.trace", prints: "byte for byte"},
	},
	"docs/how-to/what-if.md": {
		{line: "isobar whatif --lose us-east/b                              # a region, a zone or a locality", prints: "checkout"},
		{line: "isobar whatif --drain checkout@us-east/b --drain checkout@10.0.0.1:8080", prints: "checkout"},
		{line: "isobar whatif --drain @us-east/b                            # all services there", prints: "checkout"},
		{line: "isobar whatif --demand +20%                                 # of all sources and services", prints: "1 service"},
		{line: "isobar whatif --demand checkout=+20% --demand checkout@eu=+50% --demand @us-east=-10%", prints: "1 service"},
		{line: "isobar whatif --capacity checkout@us-east/b=-50%            # of the declared max_rate and concurrency", prints: "checkout"},
	},
	"docs/reference/client-status.md": {
		{line: `grpcurl -plaintext -d '{"node_matchers": [{"node_id": {"prefix": "web-"}}], "exclude_resource_contents": true}' 127.0.0.1:18000 envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus`, prints: `"web-`},
	},
	"docs/reference/health-discovery.md": {
		{line: `curl -i http://127.0.0.1:18080/v3/discovery:health_check -d '{ "health_check_request": { "node": {"id": "probe-1", "locality": {"region": "us-east", "zone": "a"}}, "capability": {"health_check_protocols": ["HTTP", "TCP"]}}}'`, prints: `(?s)200 OK.*"cluster_name": ?"checkout"`},
	},
}

// Reasons why a line of a page is not run.
const (
	output  = "what a command prints"
	asRoot  = "it installs on the machine as root"
	docker  = "it needs Docker; internal/archtest compares the files of deploy/ with the program"
	cluster = "it needs a cluster; make test-kubernetes has one"
)

// otherPages are the pages with indented or fenced lines of which TestPages runs none.
var otherPages = map[string]string{
	"docs/explanation/call-graphs.md":       "a piece of configuration",
	"docs/explanation/decisions.md":         "a formula",
	"docs/reference/admin-api.md":           "bodies of answers, which test/openapi compares with a real server",
	"docs/reference/benchmarks.md":          "measurements of minutes to an hour",
	"docs/reference/benchmarks-data.md":     "measurements of minutes",
	"docs/reference/load-reports.md":        "a header",
	"docs/reference/replica-faults.md":      "measurements of hours",
	"docs/tutorial/first-balanced-fleet.md": "TestTutorial of cmd/isobar plays the tutorial",
}
