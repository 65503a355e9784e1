package interop

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// assignmentServer sends assignments over ADS exactly as a test gives them, also
// those that Isobar would never send. Other resources, which gRPC asks for, do not change.
type assignmentServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	address string

	mu          sync.Mutex
	static      map[string]map[string]*anypb.Any // by type and name: what are no assignments
	assignments map[string]*anypb.Any            // by cluster
	changed     map[int][]string                 // clusters of each version
	version     int
	wake        chan struct{}  // closed at each change
	answers     map[int]string // what the client said of each version: "" is ACK
	answered    chan struct{}  // closed at each answer
}

func startAssignmentServer(t *testing.T) *assignmentServer {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &assignmentServer{
		address: lis.Addr().String(), assignments: map[string]*anypb.Any{}, changed: map[int][]string{},
		static: map[string]map[string]*anypb.Any{}, wake: make(chan struct{}), answers: map[int]string{}, answered: make(chan struct{}),
	}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(lis) // ends with Stop
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return s
}

// set sends assignments in one response and returns its version.
func (s *assignmentServer) set(t *testing.T, assignments ...*endpointv3.ClusterLoadAssignment) int {
	t.Helper()
	encoded := make(map[string]*anypb.Any, len(assignments))
	for _, a := range assignments {
		b, err := proto.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		encoded[a.GetClusterName()] = &anypb.Any{TypeUrl: resource.Endpoints.URL(), Value: b}
	}
	return s.publish(encoded)
}

// setEncoded is set for an assignment as Isobar encodes it.
func (s *assignmentServer) setEncoded(t *testing.T, e *resource.Encoded) int {
	t.Helper()
	resource := &anypb.Any{}
	if err := proto.Unmarshal(e.Body, resource); err != nil {
		t.Fatal(err)
	}
	return s.publish(map[string]*anypb.Any{e.Name: resource})
}

func (s *assignmentServer) publish(assignments map[string]*anypb.Any) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	for name, a := range assignments {
		s.assignments[name] = a
		s.changed[s.version] = append(s.changed[s.version], name)
	}
	close(s.wake)
	s.wake = make(chan struct{})
	return s.version
}

// answer waits until the client has accepted or rejected a version; it returns
// the text of the rejection, empty for none.
func (s *assignmentServer) answer(t *testing.T, version int) string {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		s.mu.Lock()
		text, ok := s.answers[version]
		answered := s.answered
		s.mu.Unlock()
		if ok {
			return text
		}
		select {
		case <-answered:
		case <-time.After(time.Until(deadline)):
		}
	}
	t.Fatalf("no answer to version %d within %s", version, patience)
	return ""
}

// StreamAggregatedResources serves one client.
func (s *assignmentServer) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	requests := make(chan *discoveryv3.DiscoveryRequest)
	go func() {
		defer close(requests)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- r:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	wanted, told := map[string]bool{}, 0
	for {
		s.mu.Lock()
		wake, version := s.wake, s.version
		var names []string
		for v := told + 1; v <= version; v++ {
			names = append(names, s.changed[v]...)
		}
		s.mu.Unlock()
		if err := s.send(stream, version, names, wanted); err != nil {
			return err
		}
		told = version
		select {
		case <-wake:
		case <-stream.Context().Done():
			return nil
		case r, ok := <-requests:
			if !ok {
				return nil
			}
			if r.GetTypeUrl() != resource.Endpoints.URL() {
				if err := s.sendStatic(stream, r); err != nil {
					return err
				}
				continue
			}
			s.note(r)
			var added []string
			for _, name := range r.GetResourceNames() {
				if !wanted[name] {
					wanted[name] = true
					added = append(added, name)
				}
			}
			if err := s.send(stream, told, added, wanted); err != nil {
				return err
			}
		}
	}
}

// note remembers what a request says of a response.
func (s *assignmentServer) note(r *discoveryv3.DiscoveryRequest) {
	version, err := strconv.Atoi(r.GetResponseNonce())
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[version] = r.GetErrorDetail().GetMessage()
	close(s.answered)
	s.answered = make(chan struct{})
}

// add adds a resource that clients may ask for beside assignments.
func (s *assignmentServer) add(t *testing.T, kind resource.Kind, name string, m proto.Message) {
	t.Helper()
	resource, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.static[kind.URL()] == nil {
		s.static[kind.URL()] = map[string]*anypb.Any{}
	}
	s.static[kind.URL()][name] = resource
}

// sendStatic answers a request for other resources than assignments, unless it says
// only that it has what was sent.
func (s *assignmentServer) sendStatic(stream grpc.ServerStream, r *discoveryv3.DiscoveryRequest) error {
	names := slices.Sorted(slices.Values(r.GetResourceNames()))
	version := strings.Join(names, ",") // what is asked for decides what is sent
	if r.GetVersionInfo() == version {
		return nil
	}
	out := &discoveryv3.DiscoveryResponse{VersionInfo: version, Nonce: version, TypeUrl: r.GetTypeUrl()}
	s.mu.Lock()
	for _, name := range names {
		if a := s.static[r.GetTypeUrl()][name]; a != nil {
			out.Resources = append(out.Resources, a)
		}
	}
	s.mu.Unlock()
	return stream.SendMsg(out)
}

// send sends those of the named assignments that exist and are wanted.
func (s *assignmentServer) send(stream grpc.ServerStream, version int, names []string, wanted map[string]bool) error {
	out := &discoveryv3.DiscoveryResponse{
		VersionInfo: strconv.Itoa(version), Nonce: strconv.Itoa(version), TypeUrl: resource.Endpoints.URL(),
	}
	s.mu.Lock()
	for _, name := range names {
		if a := s.assignments[name]; a != nil && wanted[name] {
			out.Resources = append(out.Resources, a)
		}
	}
	s.mu.Unlock()
	if len(out.GetResources()) == 0 {
		return nil
	}
	return stream.SendMsg(out)
}

// assignmentBootstrap is that of an Envoy with EDS clusters of these names from an
// assignmentServer. A request names its cluster in the header x-cluster. lb is
// YAML that each cluster has besides.
func assignmentBootstrap(server, lb string, clusters ...string) string {
	with := make([]string, len(clusters))
	for i := range with {
		with[i] = lb
	}
	return bootstrapOf(server, clusters, with)
}

// bootstrapOf is assignmentBootstrap with YAML for each cluster.
func bootstrapOf(server string, clusters, lb []string) string {
	host, port, _ := strings.Cut(server, ":")
	var b strings.Builder
	fmt.Fprintf(&b, `
node: {id: test, cluster: test, locality: {region: eu, zone: a}}
dynamic_resources:
  ads_config: {api_type: GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: management}}]}
static_resources:
  listeners:
  - name: test
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: test
          route_config: {virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: "/"}, route: {cluster_header: x-cluster}}]}]}
          http_filters: [{name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
  clusters:
  - name: management
    type: STATIC
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment: {cluster_name: management, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: %s, port_value: %s}}}}]}]}
`, host, port)
	for i, name := range clusters {
		fmt.Fprintf(&b, "  - {name: %s, type: EDS, connect_timeout: 1s, eds_cluster_config: {eds_config: {ads: {}, resource_api_version: V3}}, %s}\n", name, lb[i])
	}
	return b.String()
}

// localityWeighted is what a cluster needs in order to obey the weights of localities.
const localityWeighted = "common_lb_config: {locality_weighted_lb_config: {}}"

// startHosts runs HTTP servers that answer with their address.
func startHosts(t *testing.T, n int) []string {
	t.Helper()
	addresses := make([]string, n)
	for i := range addresses {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		at := lis.Addr().String()
		addresses[i] = at
		server := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, at)
		})}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = server.Serve(lis) // ends with Close
		}()
		t.Cleanup(func() {
			_ = server.Close()
			<-done
		})
	}
	return addresses
}

// tally is what became of a number of requests.
type tally struct {
	hosts   map[string]int // by the address that answered
	dropped int            // by drop_overloads
	failed  int            // in other ways
}

// ask sends n requests to a cluster, one after the other, over one connection.
func ask(ctx context.Context, listener, cluster string, n int) (*tally, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", listener)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	request := "GET / HTTP/1.1\r\nHost: test\r\nx-cluster: " + cluster + "\r\n\r\n"
	out, in := &tally{hosts: map[string]int{}}, bufio.NewReader(conn)
	for range n {
		if _, err := io.WriteString(conn, request); err != nil {
			return nil, err
		}
		if err := out.read(in); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// read counts one answer.
func (a *tally) read(in *bufio.Reader) error {
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	switch {
	case resp.StatusCode == http.StatusOK:
		a.hosts[string(body)]++
	case resp.Header.Get("X-Envoy-Drop-Overload") != "" || resp.Header.Get("X-Envoy-Unconditional-Drop-Overload") != "":
		a.dropped++
	default:
		a.failed++
	}
	return nil
}

// ask is ask with the one listener of assignmentBootstrap.
func (p *proxy) ask(t *testing.T, cluster string, n int) *tally {
	t.Helper()
	listener, err := p.Listener(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	got, err := ask(t.Context(), listener, cluster, n)
	if err != nil {
		t.Fatalf("%s: %v", cluster, err)
	}
	return got
}

// rawAssignment, rawLocality and rawHost make assignments, also such as Isobar
// would never send. A weight of 0 is not set.
func rawAssignment(cluster string, localities ...*endpointv3.LocalityLbEndpoints) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{ClusterName: cluster, Endpoints: localities}
}

func rawLocality(zone string, priority, weight uint32, hosts ...*endpointv3.LbEndpoint) *endpointv3.LocalityLbEndpoints {
	return &endpointv3.LocalityLbEndpoints{
		Locality: &corev3.Locality{Region: "eu", Zone: zone}, Priority: priority, LoadBalancingWeight: set(weight), LbEndpoints: hosts,
	}
}

func rawHost(address string, weight uint32, health corev3.HealthStatus) *endpointv3.LbEndpoint {
	host, port, _ := strings.Cut(address, ":")
	number, _ := strconv.ParseUint(port, 10, 16) // 0 where there is none
	return &endpointv3.LbEndpoint{
		HealthStatus: health, LoadBalancingWeight: set(weight),
		HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{
			Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(number)},
			}},
		}}},
	}
}

// set wraps a number that is set where it is not 0.
func set(n uint32) *wrapperspb.UInt32Value {
	if n == 0 {
		return nil
	}
	return wrapperspb.UInt32(n)
}
