package xds

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	apiv2 "github.com/envoyproxy/go-control-plane/envoy/api/v2"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// How long clients that poll are kept waiting.
const (
	// defaultPatience is shorter than the timeout of Envoy, 1 s, from which its
	// poll would fail.
	defaultPatience = 700 * time.Millisecond
	maxPatience     = time.Minute
)

// expectedTimeout is the header in which Envoy tells how long it will wait.
const expectedTimeout = "X-Envoy-Expected-Rq-Timeout-Ms"

// restPaths are the paths of the kinds, after the version.
var restPaths = [resource.Kinds]string{
	resource.Cluster: "clusters", resource.Endpoints: "endpoints", resource.Listener: "listeners", resource.Route: "routes",
}

// Handler serves discovery to clients that poll over HTTP: POST to
// /v3/discovery:endpoints, clusters, listeners or routes, or the same under
// /v2/, a DiscoveryRequest in JSON, in either spelling of the field names. The
// answer is a DiscoveryResponse in JSON with the field names of the proto files,
// or 304 when the client has it already; that is said only after having waited
// for a change for as long as the client may (see patience). only2017 makes /v2/
// mean the API version of 2017.
func Handler(s *Server, only2017 bool) http.Handler {
	mux := http.NewServeMux()
	for kind, path := range restPaths {
		k := resource.Kind(kind)
		old := rpc.V2
		if only2017 {
			old = rpc.V2017
		}
		mux.Handle("/v3/discovery:"+path, rest(s, Method{Only: k.URLIn(rpc.V3), API: rpc.V3}))
		mux.Handle("/v2/discovery:"+path, rest(s, Method{Only: k.URLIn(old), API: old}))
	}
	return mux
}

func rest(s *Server, m Method) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "POST a DiscoveryRequest in JSON", http.StatusMethodNotAllowed)
			return
		}
		body, code, err := rpc.ReadPoll(w, r)
		if err != nil {
			http.Error(w, resource.Complaint(err), code)
			return
		}
		read := func() (*discoveryv3.DiscoveryRequest, error) {
			defer func() { body = nil }()
			return readPoll(body, m.API)
		}
		a, err := s.Poll(peerContext(r).Context(), read, m, r.RemoteAddr, patience(r))
		if malformed := (malformedError{}); errors.As(err, &malformed) {
			http.Error(w, "not a DiscoveryRequest in JSON: "+resource.Complaint(malformed.error), http.StatusBadRequest)
			return
		}
		if err != nil {
			rpc.HTTPRefusal(w, err)
			return
		}
		if a.Unchanged {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		out, err := encodePoll(s, a)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(out) // when the client has gone, nobody is left to tell
	})
}

// malformedError is why a body is no request.
type malformedError struct{ error }

// readPoll reads a request. It is called in turn.
func readPoll(body []byte, api rpc.APIVersion) (*discoveryv3.DiscoveryRequest, error) {
	m := &discoveryv3.DiscoveryRequest{}
	err := rpc.ScanJSON(body)
	switch {
	case err != nil:
	case api == rpc.V3:
		err = pollJSON.Unmarshal(body, m)
	default:
		err = readOldPoll(body, m)
	}
	if err != nil {
		return nil, malformedError{err}
	}
	return m, nil
}

// pollJSON leaves out fields that are not known: they are of another version.
var pollJSON = protojson.UnmarshalOptions{DiscardUnknown: true}

// readOldPoll reads a request with the names of v2, so that what v3 has no name
// for, the build version of a node, is there as over gRPC.
func readOldPoll(body []byte, m *discoveryv3.DiscoveryRequest) error {
	old := &apiv2.DiscoveryRequest{}
	if err := pollJSON.Unmarshal(body, old); err != nil {
		return err
	}
	encoded, err := proto.Marshal(old)
	if err != nil {
		return err
	}
	return proto.Unmarshal(encoded, m)
}

// peerContext tells who the client is in the way of gRPC.
func peerContext(r *http.Request) *http.Request {
	p := &peer.Peer{Addr: restAddr(r.RemoteAddr)}
	if r.TLS != nil {
		p.AuthInfo = credentials.TLSInfo{State: *r.TLS, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	}
	return r.WithContext(peer.NewContext(r.Context(), p))
}

type restAddr string

func (restAddr) Network() string { return "tcp" }

func (a restAddr) String() string { return string(a) }

// patience is how long the client may be kept waiting for news: four fifths of
// the time that it tells it will wait, or what it prefers (RFC 7240), else what
// suits the defaults of Envoy.
func patience(r *http.Request) time.Duration {
	if ms, err := strconv.ParseUint(r.Header.Get(expectedTimeout), 10, 31); err == nil {
		return min(maxPatience, time.Duration(ms)*time.Millisecond*4/5)
	}
	for preference := range strings.SplitSeq(r.Header.Get("Prefer"), ",") {
		wait, ok := strings.CutPrefix(strings.TrimSpace(preference), "wait=")
		if seconds, err := strconv.ParseUint(wait, 10, 31); ok && err == nil {
			return min(maxPatience, time.Duration(seconds)*time.Second)
		}
	}
	return defaultPatience
}

// encodePoll encodes answers in JSON, a few at a time: making one takes several
// times its size.
func encodePoll(s *Server, a *Answer) ([]byte, error) {
	s.encoding <- struct{}{}
	defer func() { <-s.encoding }()
	return a.json(s.options.Identifier)
}

// encodedAtOnce is how many answers to polls are put into JSON at the same time.
const encodedAtOnce = 4

// json encodes an answer as a DiscoveryResponse. The message is put together
// here since 2017 had fields that no type knows any more.
func (a *Answer) json(identifier string) ([]byte, error) {
	out := struct {
		Version      string            `json:"version_info"`
		Resources    []json.RawMessage `json:"resources"`
		TypeURL      string            `json:"type_url"`
		Nonce        string            `json:"nonce,omitempty"`
		ControlPlane map[string]string `json:"control_plane,omitempty"`
	}{Version: a.Version, TypeURL: a.TypeURL, Nonce: a.Version, Resources: []json.RawMessage{}}
	if a.API != rpc.V2017 {
		out.ControlPlane = map[string]string{"identifier": identifier}
	}
	for _, r := range a.Resources {
		b, err := resource.JSON(a.API, r)
		if err != nil {
			return nil, err
		}
		out.Resources = append(out.Resources, b)
	}
	return json.Marshal(&out)
}
