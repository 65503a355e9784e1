package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sweepWorld is a real server in virtual time that gets nothing but nonsense,
// and one client that makes sense.
type sweepWorld struct {
	t      *testing.T
	server *server.Server
	log    *testhelp.Log
	conn   *grpc.ClientConn
	dial   func(context.Context) (net.Conn, error)
	polls  *http.Client
	good   *sweepStream
	stop   func() // ends the server; nothing more is looked at then
	ended  bool

	pressed atomic.Bool // clients make the server use much of the memory that they may make it use
}

// inSweep runs a test against a server of its own, and looks afterwards whether
// it is as well as before.
func inSweep(t *testing.T, test func(w *sweepWorld)) {
	t.Helper()
	inSweepWith(t, 16<<20, test)
}

// inSweepWith does so with a server that has this many bytes for messages that
// are not whole or that nobody has read.
func inSweepWith(t *testing.T, memory int64, test func(w *sweepWorld)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		kept, pipe, rest := store.NewMemory(), bufconn.Listen(1<<20), bufconn.Listen(1<<20)
		cfg := checked(t)
		cfg.XDS.Admission.StreamsPerSecond, cfg.XDS.Admission.Burst = 1e6, 1_000_000
		w := &sweepWorld{t: t, log: &testhelp.Log{}, dial: pipe.DialContext}
		var err error
		w.server, err = server.New(cfg, server.Listeners{XDS: pipe, REST: rest}, server.Options{
			Store: kept, Log: slog.New(slog.NewTextHandler(w.log, nil)), MessageMemory: memory, Pressure: w.pressed.Store,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.server.Run(ctx) }()
		w.conn = testhelp.Dial(t, pipe, grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rpc.ServerCodec())))
		w.stop = sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
			w.ended = true
		})
		defer func() { // also when the test gives up
			w.stop()
			_ = w.conn.Close()
			_ = kept.Close()
		}()
		transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return rest.DialContext(ctx) }}
		w.polls = &http.Client{Transport: transport}
		time.Sleep(interval) //nolint:forbidigo // virtual time
		synctest.Wait()
		w.good = w.open(sotwMethod)
		w.alive("at first")
		if test(w); !w.ended {
			w.wellAfter()
		}
	})
}

// wellAfter checks that no nonsense is left in the server.
func (w *sweepWorld) wellAfter() {
	w.t.Helper()
	before := w.server.Plan().Version
	time.Sleep(10 * interval) //nolint:forbidigo // virtual time
	synctest.Wait()
	w.alive("at the end")
	if p := w.server.Plan(); p.Version < before {
		w.t.Errorf("plan %d after %d", p.Version, before)
	}
	for _, protocol := range []string{"sotw", "delta"} {
		want := 0.0
		if protocol == "sotw" {
			want = 1
		}
		if n := testhelp.Series(w.t, w.server.Metrics(), "isobar_xds_streams")[protocol]; n != want {
			w.t.Errorf("%v %s streams are left", n, protocol)
		}
	}
	for line := range strings.Lines(w.log.String()) {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "defect") {
			w.t.Errorf("logged: %.500s", line)
		}
	}
}

// alive checks that the client that makes sense is served.
func (w *sweepWorld) alive(when string) {
	w.t.Helper()
	ask := func(s *sweepStream, name string) {
		m, err := proto.Marshal(&discoveryv3.DiscoveryRequest{
			Node: nodeIn("good", "us/a"), TypeUrl: resource.EndpointsURL, ResponseNonce: s.nonce(), ResourceNames: []string{name},
		})
		if err != nil {
			w.t.Fatal(err)
		}
		s.send(m)
	}
	before := w.good.answers()
	ask(w.good, "of no use any more") // a name that is new is answered
	if ask(w.good, "checkout"); w.good.answers() == before {
		w.t.Fatalf("%s: others are served no longer: %v", when, w.good.err)
	}
	one := w.open(sotwMethod)
	defer one.close()
	if ask(one, "checkout"); one.answers() != 1 {
		w.t.Fatalf("%s: new streams are served no longer: %v", when, one.err)
	}
}

// sweepStream is a stream of which only the bytes are known.
type sweepStream struct {
	grpc.ClientStream

	cancel context.CancelFunc

	mu   sync.Mutex
	got  int
	last []byte
	err  error
}

func (w *sweepWorld) open(method string) *sweepStream {
	w.t.Helper()
	return w.openOn(w.conn, method)
}

func (w *sweepWorld) openOn(conn *grpc.ClientConn, method string) *sweepStream {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		w.t.Fatalf("%s: %v", method, err)
	}
	out := &sweepStream{ClientStream: s, cancel: cancel}
	go out.receive()
	return out
}

func (s *sweepStream) receive() {
	for {
		var m rpc.RawMessage
		err := s.RecvMsg(&m)
		s.mu.Lock()
		if err != nil {
			s.err = err
			s.mu.Unlock()
			return
		}
		s.got, s.last = s.got+1, m.Data
		s.mu.Unlock()
	}
}

// send sends a message and waits until all that follows from it has happened:
// what checkers change may wait a little for what else they change.
func (s *sweepStream) send(message []byte) {
	_ = s.SendMsg(&rpc.Frame{Pieces: mem.BufferSlice{mem.SliceBuffer(message)}}) // RecvMsg knows why it failed
	time.Sleep(100 * time.Millisecond)                                           //nolint:forbidigo // virtual time
	synctest.Wait()
}

func (s *sweepStream) close() {
	s.cancel()
	synctest.Wait()
}

func (s *sweepStream) answers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

// nonce is that of the last response; responses of both kinds have it in the
// same field.
func (s *sweepStream) nonce() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var m discoveryv3.DiscoveryResponse
	_ = (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(s.last, &m) // of another kind: none
	return m.GetNonce()
}

// outcome is what a message led to, after which there were already some answers.
func (s *sweepStream) outcome(before int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return status.Code(s.err).String()
	case s.got > before:
		return "answered"
	default:
		return "taken"
	}
}

// clear tells whether a refusal says what is wrong, to whom can fix it.
func (s *sweepStream) clear() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return isClear(s.err)
}

// tally is what messages led to, for the table.
type tally map[string]map[string][]string // by outcome and path

func (t tally) add(outcome string, m mutation) {
	if t[outcome] == nil {
		t[outcome] = map[string][]string{}
	}
	t[outcome][m.path] = append(t[outcome][m.path], m.what)
}

// count appends how many messages led to what.
func (t tally) count(b *bytes.Buffer, title string) {
	fmt.Fprintf(b, "\n== %s\n", title)
	for _, outcome := range slices.Sorted(maps.Keys(t)) {
		fmt.Fprintf(b, "%s: %d\n", outcome, len(slices.Concat(slices.Collect(maps.Values(t[outcome]))...)))
	}
}

// write appends that, and which messages were refused.
func (t tally) write(b *bytes.Buffer, title string) {
	t.count(b, title)
	for _, outcome := range slices.Sorted(maps.Keys(t)) {
		if outcome == "answered" || outcome == "taken" {
			continue
		}
		for _, path := range slices.Sorted(maps.Keys(t[outcome])) {
			fmt.Fprintf(b, "    %s: %s: %s\n", outcome, path, strings.Join(t[outcome][path], ", "))
		}
	}
}

// golden compares a table with what was seen and judged before.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: the outcomes have changed; look at them and run with -update:\n%s", path, got)
	}
}

// decodeJSON reads a document as generic values.
func decodeJSON(t *testing.T, data []byte) any {
	t.Helper()
	var out any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSweepOfPolls does to the bodies of polls over HTTP what TestSweepOfFields
// does to messages, and puts values of the wrong kind in every place.
func TestSweepOfPolls(t *testing.T) {
	var table bytes.Buffer
	for _, x := range []struct {
		path string
		full proto.Message
	}{
		{"/v3/discovery:endpoints", fullRequest(resource.EndpointsURL)},
		{rpc.CheckerPath, fullHello()},
		{rpc.CheckerPath, fullHealth()},
	} {
		const memory = 64 << 20 // the largest body, and what it takes to read it
		inSweepWith(t, memory, func(w *sweepWorld) {
			out, id := tally{}, w.enterChecker()
			poll := func(body []byte, m mutation) {
				if x.path == rpc.CheckerPath {
					<-time.After(time.Second) // a checker that polls has a pace
				}
				code, text := w.poll(x.path, id, body)
				switch code {
				case http.StatusOK, http.StatusNotModified:
				case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
					if len(text) < 10 || len(text) > 1000 {
						t.Errorf("%s, %s %s: %d with %.2000q", x.path, m.path, m.what, code, text)
					}
				default:
					t.Errorf("%s, %s %s: %d %.200q", x.path, m.path, m.what, code, text)
				}
				out.add(http.StatusText(code), m)
			}
			for _, m := range mutations(x.full) {
				message := proto.CloneOf(x.full).ProtoReflect()
				m.apply(message)
				body, err := protojson.Marshal(message.Interface())
				if err != nil {
					continue // what JSON can't say
				}
				poll(spoil(body), m)
			}
			w.alive("after wrong fields")
			spaced, err := protojson.Marshal(x.full)
			if err != nil {
				t.Fatal(err)
			}
			all := decodeJSON(t, spaced)
			full, err := json.Marshal(all) // protojson puts blanks in at random
			if err != nil {
				t.Fatal(err)
			}
			for _, doc := range jsonMutations(all) {
				body, err := json.Marshal(doc)
				if err != nil {
					t.Fatal(err)
				}
				poll(body, mutation{path: "any", what: "of the wrong kind"})
			}
			for _, body := range brokenJSON(full) {
				poll(body, mutation{path: "document", what: "broken"})
			}
			out.count(&table, fmt.Sprintf("%s, %s", x.path, x.full.ProtoReflect().Descriptor().Name()))
		})
	}
	golden(t, "sweep_polls.golden", table.Bytes())
}

// brokenJSON is what is no document, or one that is hard to read.
func brokenJSON(full []byte) [][]byte {
	out := [][]byte{
		nil, []byte("null"), []byte("[]"), []byte(`"x"`), []byte("{"), []byte("{}{}"), []byte("\xff\xfe"), []byte(`{"node":{"node":{}}}`),
		bytes.Repeat([]byte("["), 1_000_000), bytes.Repeat([]byte(`{"a":`), 500_000), []byte(`{"version_info":1e999999999}`),
		bytes.Repeat([]byte(" "), 5<<20), append([]byte(`{"version_info":"1","version_info":"2",`), full[1:]...),
	}
	for i := 0; i < len(full); i += 1 + len(full)/50 {
		out = append(out, full[:i])
	}
	return out
}

// enterChecker has a checker enter that polls, and returns what it says who it is
// with.
func (w *sweepWorld) enterChecker() string {
	w.t.Helper()
	hello, err := protojson.Marshal(fullHello())
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.post(rpc.CheckerPath, "", hello)
	if err != nil || resp.StatusCode != http.StatusOK {
		w.t.Fatalf("a checker's first poll: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	return resp.Header.Get(hds.CheckerHeader)
}

func (w *sweepWorld) post(path, id string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://isobar"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if id != "" {
		r.Header.Set(hds.CheckerHeader, id)
	}
	return w.polls.Do(r)
}

// poll posts a body and returns what comes back.
func (w *sweepWorld) poll(path, id string, body []byte) (code int, text string) {
	w.t.Helper()
	resp, err := w.post(path, id, body)
	if err != nil {
		w.t.Fatalf("%s: %v", path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("%s: %v", path, err)
	}
	return resp.StatusCode, strings.TrimSpace(string(b))
}
