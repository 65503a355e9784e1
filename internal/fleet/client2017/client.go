package client2017

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// The methods of that time.
const (
	methodEndpoints = "/envoy.api.v2.EndpointDiscoveryService/StreamEndpoints"
	methodLoad      = "/envoy.api.v2.EndpointDiscoveryService/StreamLoadStats"
	methodChecks    = "/envoy.api.v2.HealthDiscoveryService/StreamHealthCheck"
	methodFetch     = "/envoy.api.v2.HealthDiscoveryService/FetchHealthCheck"
)

// assignmentURL is the type of assignments.
const assignmentURL = typePrefix + pkg + "ClusterLoadAssignment"

// Client speaks to one server.
type Client struct {
	Conn grpc.ClientConnInterface
	Node Node
}

// stream sends and receives messages of that time.
type stream struct {
	grpc    grpc.ClientStream
	sends   string
	expects string
}

func (c *Client) open(ctx context.Context, method, sends, expects string) (*stream, error) {
	s, err := c.Conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return nil, err
	}
	return &stream{grpc: s, sends: sends, expects: expects}, nil
}

func (s *stream) send(m any) error {
	out, err := encode(s.sends, m)
	if err != nil {
		return err
	}
	return s.grpc.SendMsg(out)
}

func (s *stream) receive() (*dynamicpb.Message, error) {
	m, err := New(s.expects)
	if err != nil {
		return nil, err
	}
	if err := s.grpc.RecvMsg(m); err != nil {
		return nil, err
	}
	return m, Strict(m)
}

// Endpoints is an open subscription to assignments.
type Endpoints struct {
	stream  *stream
	names   []string
	answer  response
	version string // accepted last
}

// response is a DiscoveryResponse without its resources.
type response struct{ version, nonce string }

// request is a DiscoveryRequest.
type request struct {
	Version string   `json:"version_info,omitempty"`
	Node    *Node    `json:"node,omitempty"`
	Names   []string `json:"resource_names,omitempty"`
	TypeURL string   `json:"type_url,omitempty"`
	Nonce   string   `json:"response_nonce,omitempty"`
}

// Endpoints subscribes to the assignments of these services.
func (c *Client) Endpoints(ctx context.Context, names ...string) (*Endpoints, error) {
	s, err := c.open(ctx, methodEndpoints, "DiscoveryRequest", "DiscoveryResponse")
	if err != nil {
		return nil, err
	}
	e := &Endpoints{stream: s, names: names}
	return e, s.send(request{Node: &c.Node, Names: names, TypeURL: assignmentURL})
}

// Receive waits for the next response. It has to be answered by Accept or
// Reject.
func (e *Endpoints) Receive() ([]Assignment, error) {
	m, err := e.stream.receive()
	if err != nil {
		return nil, err
	}
	text := func(m protoreflect.Message, field protoreflect.Name) protoreflect.Value {
		return m.Get(m.Descriptor().Fields().ByName(field))
	}
	if url := text(m, "type_url").String(); url != assignmentURL {
		return nil, fmt.Errorf("a response of type %s", url)
	}
	e.answer = response{text(m, "version_info").String(), text(m, "nonce").String()}
	list := text(m, "resources").List()
	out := make([]Assignment, list.Len())
	for i := range out {
		resource := list.Get(i).Message()
		if url := text(resource, "type_url").String(); url != assignmentURL {
			return nil, fmt.Errorf("a resource of type %s", url)
		}
		a, err := Decode("ClusterLoadAssignment", text(resource, "value").Bytes())
		if err != nil {
			return nil, err
		}
		if err := decode(a, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Accept acknowledges the newest response.
func (e *Endpoints) Accept() error {
	e.version = e.answer.version
	return e.Reject()
}

// Reject refuses the newest response: all that shows it is that the version is
// still the one before.
func (e *Endpoints) Reject() error {
	return e.stream.send(request{Version: e.version, Names: e.names, TypeURL: assignmentURL, Nonce: e.answer.nonce})
}

// Load is an open stream of load reports.
type Load struct {
	stream *stream
	node   Node
}

// Load offers load reports.
func (c *Client) Load(ctx context.Context) (*Load, error) {
	s, err := c.open(ctx, methodLoad, "LoadStatsRequest", "LoadStatsResponse")
	if err != nil {
		return nil, err
	}
	l := &Load{stream: s, node: c.Node}
	return l, l.Report()
}

// Receive waits until the server asks for something. The client counts from
// zero then.
func (l *Load) Receive() (LoadRequest, error) {
	var out LoadRequest
	m, err := l.stream.receive()
	if err != nil {
		return out, err
	}
	return out, decode(m, &out)
}

// Report sends a report.
func (l *Load) Report(stats ...ClusterStats) error {
	return l.stream.send(struct {
		Node  Node           `json:"node"`
		Stats []ClusterStats `json:"cluster_stats,omitempty"`
	}{l.node, stats})
}

// Checks is an open stream of a checker.
type Checks struct{ stream *stream }

// checkMessage is a HealthCheckRequestOrEndpointHealthResponse.
type checkMessage struct {
	Request  *checkRequest `json:"health_check_request,omitempty"`
	Response *checkReport  `json:"endpoint_health_response,omitempty"`
}

type checkRequest struct {
	Node       Node `json:"node"`
	Capability struct {
		Protocols []string `json:"health_check_protocol"`
	} `json:"capability"`
}

type checkReport struct {
	Endpoints []EndpointHealth `json:"endpoints_health"`
}

func (c *Client) checker(protocols []string) checkMessage {
	r := &checkRequest{Node: c.Node}
	r.Capability.Protocols = protocols
	return checkMessage{Request: r}
}

// Checks offers to probe with protocols: HTTP, TCP or REDIS.
func (c *Client) Checks(ctx context.Context, protocols ...string) (*Checks, error) {
	s, err := c.open(ctx, methodChecks, "HealthCheckRequestOrEndpointHealthResponse", "HealthCheckSpecifier")
	if err != nil {
		return nil, err
	}
	return &Checks{s}, s.send(c.checker(protocols))
}

// Fetch asks once what to probe.
func (c *Client) Fetch(ctx context.Context, protocols ...string) (out Specifier, err error) {
	in, err := encode("HealthCheckRequestOrEndpointHealthResponse", c.checker(protocols))
	if err != nil {
		return out, err
	}
	m, err := New("HealthCheckSpecifier")
	if err != nil {
		return out, err
	}
	if err := c.Conn.Invoke(ctx, methodFetch, in, m); err != nil {
		return out, err
	}
	return out, decode(m, &out)
}

// Receive waits until the server says what to probe.
func (c *Checks) Receive() (Specifier, error) {
	var out Specifier
	m, err := c.stream.receive()
	if err != nil {
		return out, err
	}
	return out, decode(m, &out)
}

// Report says how endpoints are.
func (c *Checks) Report(endpoints ...EndpointHealth) error {
	return c.stream.send(checkMessage{Response: &checkReport{endpoints}})
}
