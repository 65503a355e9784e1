package xdsclient

import (
	"context"
	"errors"
	"io"
	"reflect"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservicev3 "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"golang.org/x/sync/errgroup"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/isobar-xds/isobar/internal/discovery/keep"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

const (
	// maxResponse is the most bytes of one message from the server.
	maxResponse = 32 << 20
	// patience is after how long without an answer it is told that there is none.
	patience = 15 * time.Second
	// userAgent is node.user_agent_name.
	userAgent = "isobar"
)

// discovery is the stream of either service.
type discovery interface {
	Send(request *discoveryv3.DiscoveryRequest) error
	Recv() (*discoveryv3.DiscoveryResponse, error)
}

// session is one stream to the server.
type session struct {
	client *Client
	cfg    *Config
	stream discovery

	received chan *discoveryv3.DiscoveryResponse
	done     chan struct{} // closed when nothing more comes
	ending   error         // why; to be read after done

	node    *corev3.Node // to be sent; nil once it was
	names   []string     // as asked for
	version string       // accepted last on this stream
	nonce   string       // of the last response
	began   bool         // the server has answered
}

// talk keeps one stream until it breaks, ctx ends, or the configuration calls
// for another one (nil). It reports whether the server answered.
func (c *Client) talk(ctx context.Context, cfg *Config) (answered bool, err error) {
	conn, err := connect(cfg, c.opts.Dial)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }() // an error says that it is closed already
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &session{
		client: c, cfg: cfg, node: nodeOf(cfg.Node),
		received: make(chan *discoveryv3.DiscoveryResponse), done: make(chan struct{}),
	}
	if s.stream, err = openStream(ctx, conn, cfg.ADS); err != nil {
		return false, err
	}
	go func() {
		defer close(s.done)
		s.ending = s.receive(ctx)
	}()
	if err = s.subscribe(); err == nil {
		c.opened()
		err = s.serve(ctx)
	}
	if errors.Is(err, io.EOF) { // of Send: Recv knows why
		err = s.whyEnded()
	}
	cancel()
	<-s.done
	return s.began, err
}

func openStream(ctx context.Context, conn grpc.ClientConnInterface, ads bool) (discovery, error) {
	calls := []grpc.CallOption{grpc.MaxCallRecvMsgSize(maxResponse), grpc.ForceCodecV2(rpc.ServerCodec())}
	if ads {
		return discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx, calls...)
	}
	return endpointservicev3.NewEndpointDiscoveryServiceClient(conn).StreamEndpoints(ctx, calls...)
}

// receive hands on what comes until the stream ends.
func (s *session) receive(ctx context.Context) error {
	for {
		resp, err := s.stream.Recv()
		if errors.Is(err, io.EOF) {
			return errEnded
		}
		if err != nil {
			return err
		}
		select {
		case s.received <- resp:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errEnded says that the server ended the stream without a reason.
var errEnded = errors.New("the server has ended the stream")

// whyEnded waits for what the server says at the end of a stream.
func (s *session) whyEnded() error {
	for {
		select {
		case <-s.received: // too late
		case <-s.done:
			return s.ending
		}
	}
}

// serve lists all that can happen to a stream.
func (s *session) serve(ctx context.Context) error {
	release := time.NewTimer(time.Hour)
	defer release.Stop()
	quiet := time.NewTimer(patience)
	defer quiet.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.done:
			return s.ending
		case resp := <-s.received:
			err = s.response(resp)
		case <-s.client.changed:
			next := s.client.config()
			if next == nil || !sameServer(s.cfg, next) || !sameMeaning(s.cfg, next) {
				return nil
			}
			s.cfg = next
			err = s.subscribe()
			quiet.Reset(patience)
		case <-quiet.C:
			s.client.logUnanswered(s.cfg)
		case <-release.C:
		}
		if err != nil {
			return err
		}
		release.Reset(s.client.release(s.cfg))
	}
}

// sameServer reports whether a stream can go on under another configuration.
func sameServer(a, b *Config) bool {
	return a.Server == b.Server && reflect.DeepEqual(a.TLS, b.TLS) && a.Node == b.Node && a.ADS == b.ADS
}

// sameMeaning reports whether what was answered under one configuration says the same
// under another: servers don't answer again as long as the names are the same.
func sameMeaning(a, b *Config) bool {
	if a.DefaultLocality != b.DefaultLocality {
		return false
	}
	services := make(map[string]string, len(a.Services))
	for i := range a.Services {
		services[a.Services[i].EDSName] = a.Services[i].Settings.Name
	}
	for i := range b.Services {
		if name, asked := services[b.Services[i].EDSName]; asked && name != b.Services[i].Settings.Name {
			return false
		}
	}
	return true
}

// subscribe asks for the names that are configured now, unless that is what
// was asked for.
func (s *session) subscribe() error {
	names := s.client.wanted()
	if s.names != nil && slices.Equal(names, s.names) {
		return nil
	}
	s.names = names
	return s.send(nil)
}

// send acknowledges the last response, or refuses it for a reason; before the
// first one it asks only. Each request has all names; none tells a version of
// an earlier stream, so that the first answer is complete even where versions
// restart with the server.
func (s *session) send(refusal error) error {
	request := &discoveryv3.DiscoveryRequest{
		VersionInfo: s.version, Node: s.node, ResourceNames: s.names,
		TypeUrl: resource.EndpointsURL, ResponseNonce: s.nonce,
	}
	if refusal != nil {
		request.ErrorDetail = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: refusal.Error()}
	}
	s.node = nil
	return s.stream.Send(request)
}

// response takes one message and answers it.
func (s *session) response(resp *discoveryv3.DiscoveryResponse) error {
	if url := resp.GetTypeUrl(); url != resource.EndpointsURL {
		return rpc.BadMessage("type_url", keep.Short(url)+" was not asked for")
	}
	s.began = true
	s.nonce = resp.GetNonce()
	refusal := s.client.take(s.cfg, resp)
	if refusal == nil {
		s.version = resp.GetVersionInfo()
	}
	return s.send(refusal)
}

func nodeOf(n Node) *corev3.Node {
	out := &corev3.Node{Id: n.ID, Cluster: n.Cluster, UserAgentName: userAgent}
	if l := n.Locality; !l.IsZero() {
		out.Locality = &corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone}
	}
	return out
}

// Run follows the server until ctx ends, saves what is known and returns nil.
func (c *Client) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		c.follow(ctx)
		return nil
	})
	g.Go(func() error {
		c.saver.Run(ctx, c.metrics.saveErrors)
		return nil
	})
	return g.Wait()
}

// follow keeps a stream open.
func (c *Client) follow(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		select {
		case <-c.changed: // seen by what follows
		default:
		}
		cfg := c.config()
		if cfg == nil {
			select {
			case <-ctx.Done():
			case <-c.changed:
			}
			continue
		}
		answered, err := c.talk(ctx, cfg)
		c.ended(ctx, cfg, err)
		if answered {
			failures = 0
		}
		if err == nil { // what is asked of whom has changed
			continue
		}
		failures++
		timer := time.NewTimer(keep.Backoff(failures))
		select {
		case <-ctx.Done():
		case <-c.changed: // perhaps to a server that can be reached
		case <-timer.C:
		}
		timer.Stop()
	}
}

// ended notes that a stream has ended; a nil error says that we ended it.
func (c *Client) ended(ctx context.Context, cfg *Config, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link.connected {
		c.link.connected, c.link.since = false, time.Now()
	}
	c.metrics.connected.Set(0)
	c.table.forget()
	c.show()
	if err == nil || ctx.Err() != nil {
		return
	}
	text := keep.Short(err.Error())
	if text == c.link.failure {
		return // told before
	}
	c.link.failure = text
	c.warn("no endpoints from the other control plane; the last listed ones stay", "server", cfg.Server, "error", text)
}

// warn logs what the server can trigger, at a bounded rate.
func (c *Client) warn(msg string, attrs ...any) {
	c.limit.Warn(c.opts.Log, msg, attrs...)
}
