package hds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/hds/convert"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// CheckerHeader names the header by which a checker that polls says who it is
// when it reports: a report holds no node, and there is no stream that it
// belongs to. The value is what the same header of the answer to the checker's
// request said. A checker that knows only the API sends no such header: its reports count
// as long as no other checker polls from where they come from.
const CheckerHeader = "Isobar-Checker"

// Handler serves health discovery over HTTP: POST to [rpc.CheckerPath] or
// [rpc.CheckerPathV2] with a HealthCheckRequestOrEndpointHealthResponse in JSON, in either spelling
// of the field names; a HealthCheckRequest alone is taken, too. The answer is a
// HealthCheckSpecifier in JSON with the field names of the proto files. A
// request with the names of 2017 gets an answer with those. See [CheckerHeader]
// for reports.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "POST only", http.StatusMethodNotAllowed)
			return
		}
		body, code, err := rpc.ReadPoll(w, r)
		if err != nil {
			http.Error(w, err.Error(), code)
			return
		}
		api := rpc.V3
		if r.URL.Path == rpc.CheckerPathV2 {
			api = rpc.V2
		}
		var got fetched
		err = s.reading.In(r.Context(), func() error {
			m, api, err := convert.HealthMessageFromJSON(body, api)
			body = nil
			if err != nil {
				return malformedError{err}
			}
			got, err = s.fetch(r.Context(), m, api, r.Header.Get(CheckerHeader), r.RemoteAddr, time.Now())
			return err
		})
		if malformed := (malformedError{}); errors.As(err, &malformed) {
			http.Error(w, "not a HealthCheckRequestOrEndpointHealthResponse in JSON: "+resource.Complaint(malformed.error), http.StatusBadRequest)
			return
		}
		if err != nil {
			rpc.HTTPRefusal(w, err)
			return
		}
		out, err := convert.SpecifierJSON(got.checker.api, got.specifier)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set(CheckerHeader, got.checker.id)
		_, _ = w.Write(out) // when the client has gone, nobody is left to tell
	})
}

// malformedError is why a body is no message.
type malformedError struct{ error }

// fetchOne serves checkers that poll over gRPC. A request enters the checker, or
// keeps it; for a report see [CheckerHeader]. The answer to both is what the
// checker shall probe now.
func (s *Server) fetchOne(ctx context.Context, in *healthv3.HealthCheckRequestOrEndpointHealthResponse, api rpc.APIVersion) (proto.Message, error) {
	id := ""
	if v := metadata.ValueFromIncomingContext(ctx, CheckerHeader); len(v) > 0 {
		id = v[0]
	}
	out, err := s.fetch(ctx, convert.HealthMessageOf(in), api, id, rpc.PeerAddress(ctx), time.Now())
	if err != nil {
		return nil, err
	}
	return out.specifier, grpc.SetHeader(ctx, metadata.Pairs(CheckerHeader, out.checker.id))
}

// fetched is the answer to a checker that polls.
type fetched struct {
	checker   *checker
	specifier proto.Message // in the checker's API version
}

// fetch serves one message of a checker that polls; the errors are statuses. A
// request says what API version its checker speaks, a report is of that API version.
func (s *Server) fetch(ctx context.Context, m convert.HealthMessage, api rpc.APIVersion, id, address string, now time.Time) (fetched, error) {
	select {
	case <-s.stopped:
		return fetched{}, s.refuse(refusedStopped, codes.Unavailable, "the server is going away")
	default:
	}
	s.present(now) // takes out those that have fallen silent
	var c *checker
	var err error
	if m.Request != nil {
		c, err = s.poll(ctx, m, api, address, now)
	} else {
		c, err = s.poller(ctx, id, address)
	}
	if err != nil {
		return fetched{}, err
	}
	if err := s.tooOften(c, address, now); err != nil {
		return fetched{}, err
	}
	if m.Response != nil {
		if err := s.report(c, m.Response, now); err != nil {
			return fetched{}, s.refuse(refusedMessage, codes.InvalidArgument, err.Error())
		}
	} else {
		c.mu.Lock()
		c.seen(now)
		c.mu.Unlock()
	}
	out, err := s.prepare(c, s.current(), now)
	if err != nil {
		s.metrics.leftOut.WithLabelValues(leftSpecifier).Inc()
		return fetched{}, status.Error(codes.Internal, err.Error())
	}
	s.metrics.assignments.WithLabelValues(sentFetched).Inc()
	return fetched{c, out.specifier}, nil
}

// tooOften returns an error for a poll of a checker that is beyond its pace. Such a client can
// send many at once, so that waiting would not slow it down. It sends its newest state again.
func (s *Server) tooOften(c *checker, peer string, now time.Time) error {
	interval := s.interval()
	each := interval / reportsPerInterval
	c.mu.Lock()
	wait := c.pace.Wait(now, each, reportBurst)
	if wait == 0 {
		c.pace.Take(each)
	} else {
		c.seen(now)
	}
	c.mu.Unlock()
	if wait == 0 {
		return nil
	}
	s.excessive(c, peer, interval, now)
	return status.Error(codes.ResourceExhausted,
		fmt.Sprintf("too many polls of this checker: %d at once and %d in an interval of %v are served; poll again in %v",
			reportBurst, reportsPerInterval, interval, wait.Round(time.Millisecond)))
}

// excessive counts and logs a message of a checker that is beyond its pace.
func (s *Server) excessive(c *checker, peer string, interval time.Duration, now time.Time) {
	s.metrics.excess.Inc()
	if skipped, ok := s.limit.Allow(now); ok {
		s.log.Warn("a checker reports far more often than requested; slowing it down", "checker", c.id,
			"peer", peer, "interval", interval, "skipped_lines", skipped)
	}
}

// poll enters a checker that polls, or finds it.
func (s *Server) poll(ctx context.Context, m convert.HealthMessage, api rpc.APIVersion, address string, now time.Time) (*checker, error) {
	hello, err := convert.CheckerFrom(m.Request, api)
	hello = hello.Bounded(s.opts.EnvoyEndpoints)
	if err != nil {
		return nil, s.refuse(refusedMessage, codes.InvalidArgument, err.Error())
	}
	m.Request.Reset() // it may wait now, and has to keep nothing of what came
	rpc.Keeps(ctx, 0)
	s.place(ctx, address, &hello.Node)
	if err := s.allowed(ctx, hello.Node); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.names.polling(&hello, api); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.hello.Protocols != hello.Protocols || c.hello.MaxEndpoints != hello.MaxEndpoints {
			c.hello.Protocols, c.hello.MaxEndpoints = hello.Protocols, hello.MaxEndpoints
			s.signal()
		}
		c.peer, c.origin = address, s.origin(ctx, address)
		return c, nil
	}
	c := newChecker(hello, api, address, now)
	c.polling, c.account, c.origin = true, s.account(ctx), s.origin(ctx, address)
	return c, s.admit(c, now)
}

// poller finds the checker that reports: the one that a header names or, without
// a header, the only one that polls from there. A stream can't be named so: it
// speaks for itself.
func (s *Server) poller(ctx context.Context, id, address string) (*checker, error) {
	c, err := s.named(id, s.origin(ctx, address))
	if err != nil {
		return nil, err
	}
	if err := s.allowed(ctx, c.hello.Node); err != nil { // a name in a header proves nothing
		return nil, err
	}
	return c, nil
}

// named finds a checker that polls by its ID or, if that is empty, by its origin.
func (s *Server) named(id, origin string) (*checker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != "" {
		if c := s.live[id]; c != nil && c.polling {
			return c, nil
		}
		return nil, status.Errorf(codes.FailedPrecondition, "no checker %.100q polls here: send a health_check_request first", id)
	}
	var only *checker
	for _, c := range s.live { // whether there is exactly one has no order
		switch {
		case !c.polling || c.origin != origin:
		case only != nil:
			return nil, s.refuse(refusedMessage, codes.InvalidArgument,
				"several checkers poll from your address, and the report does not name its checker: add the header "+CheckerHeader+
					" with the value that the answer to your health_check_request had")
		default:
			only = c
		}
	}
	if only == nil {
		return nil, s.refuse(refusedMessage, codes.InvalidArgument,
			"the report does not name its checker, and no checker polls from your address: send a health_check_request first")
	}
	return only, nil
}

// origin is where requests of a checker come from: its host, and who it has proved to
// be. A checker that polls may open a connection for each request.
func (s *Server) origin(ctx context.Context, address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address // of connections that have no port
	}
	if s.opts.Identity == nil {
		return host
	}
	return host + " " + s.opts.Identity(ctx)
}

// polling finds the live checker that polls under a node id and locality, in a
// API version: one that comes back speaking another is a new one.
func (n *names) polling(hello *convert.CheckerHello, api rpc.APIVersion) *checker {
	f := n.families[hello.Node.ID]
	if f == nil {
		return nil
	}
	for _, m := range f.members {
		if m.checker != nil && m.checker.polling && m.checker.api == api && m.locality == hello.Node.Locality {
			return m.checker
		}
	}
	return nil
}
