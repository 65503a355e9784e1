package fleet

import (
	"context"
	"fmt"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointsvc "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"golang.org/x/sync/errgroup"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// assignmentType is the type URL of endpoint assignments.
const assignmentType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

// discoveryStream is what ADS and the single EDS service have in common.
type discoveryStream interface {
	Send(req *discoveryv3.DiscoveryRequest) error
	Recv() (*discoveryv3.DiscoveryResponse, error)
}

func (a *Agent) openDiscovery(ctx context.Context) (discoveryStream, error) {
	if a.opts.Endpoints {
		return endpointsvc.NewEndpointDiscoveryServiceClient(a.opts.Conn).StreamEndpoints(ctx)
	}
	return discoveryv3.NewAggregatedDiscoveryServiceClient(a.opts.Conn).StreamAggregatedResources(ctx)
}

// discover runs one discovery stream: it subscribes, and applies and answers
// each response a push delay after its arrival.
func (a *Agent) discover(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := a.openDiscovery(ctx)
	if err != nil {
		return fmt.Errorf("open discovery: %w", err)
	}
	// Versions outlive streams: what is in use is shown on the new one.
	accepted := a.latestVersion()
	err = stream.Send(&discoveryv3.DiscoveryRequest{
		Node: a.node(), TypeUrl: assignmentType, ResourceNames: a.services, VersionInfo: accepted,
	})
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	line := newDelayLine[*discoveryv3.DiscoveryResponse](a.opts.PushDelay)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer cancel()
		return line.run(ctx, func(resp *discoveryv3.DiscoveryResponse) error {
			req := &discoveryv3.DiscoveryRequest{
				TypeUrl: resp.GetTypeUrl(), ResourceNames: a.services, ResponseNonce: resp.GetNonce(),
			}
			if bad := a.apply(resp); bad != nil {
				req.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: bad.Error()}
			} else {
				accepted = resp.GetVersionInfo()
			}
			req.VersionInfo = accepted
			return stream.Send(req)
		})
	})
	g.Go(func() error {
		defer cancel()
		for {
			resp, err := stream.Recv()
			if err != nil {
				return err
			}
			if err := line.put(ctx, resp); err != nil {
				return err
			}
		}
	})
	return g.Wait()
}

// apply takes the assignments of a response into use. One that is refused
// does not keep the others out, but the response is answered by a NACK.
func (a *Agent) apply(resp *discoveryv3.DiscoveryResponse) error {
	if resp.GetTypeUrl() != assignmentType {
		return fmt.Errorf("type %q was not asked for", resp.GetTypeUrl())
	}
	var refused error
	seen := make(map[string]bool, len(resp.GetResources()))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance(time.Now())
	for _, res := range resp.GetResources() {
		cla := new(endpointv3.ClusterLoadAssignment)
		if err := res.UnmarshalTo(cla); err != nil {
			refused = fmt.Errorf("unreadable resource: %w", err)
			continue
		}
		if err := a.vet(cla, seen); err != nil {
			refused = fmt.Errorf("assignment %q: %w", cla.GetClusterName(), err)
			continue
		}
		if a.counts[cla.GetClusterName()] == nil {
			continue // not subscribed: clients ignore it
		}
		if old := a.assigned[cla.GetClusterName()]; old != nil && a.opts.Kind == KindEnvoy && onlyDropsDiffer(old.cla, cla) {
			cla = old.cla // Envoy accepts the update and goes on as before
		}
		a.assigned[cla.GetClusterName()] = &applied{
			cla: cla, version: resp.GetVersionInfo(), at: time.Now(), localities: localitiesOf(cla),
		}
	}
	if refused != nil {
		a.nacks++
	}
	close(a.changed)
	a.changed = make(chan struct{})
	return refused
}

// onlyDropsDiffer reports whether two assignments are equal but for what clients
// drop.
func onlyDropsDiffer(a, b *endpointv3.ClusterLoadAssignment) bool {
	return !proto.Equal(a, b) && proto.Equal(withoutDrops(a), withoutDrops(b))
}

func withoutDrops(cla *endpointv3.ClusterLoadAssignment) *endpointv3.ClusterLoadAssignment {
	out := proto.CloneOf(cla)
	if out.GetPolicy() != nil {
		out.Policy.DropOverloads = nil
		if proto.Equal(out.GetPolicy(), new(endpointv3.ClusterLoadAssignment_Policy)) {
			out.Policy = nil
		}
	}
	return out
}

func (a *Agent) vet(cla *endpointv3.ClusterLoadAssignment, seen map[string]bool) error {
	if seen[cla.GetClusterName()] {
		return errTwice
	}
	seen[cla.GetClusterName()] = true
	if err := checkAssignment(cla); err != nil {
		return err
	}
	if a.opts.Accept != nil {
		return a.opts.Accept(cla)
	}
	return nil
}

func (a *Agent) latestVersion() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var latest *applied
	for _, s := range a.services {
		if ap := a.assigned[s]; ap != nil && (latest == nil || ap.at.After(latest.at)) {
			latest = ap
		}
	}
	if latest == nil {
		return ""
	}
	return latest.version
}
