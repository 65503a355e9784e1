//go:build !race

package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// TestAnswersThatAreNotTaken: large answers of one client that gives no window
// are bounded, also once their requests are done with; those of others are not
// lost for ever when it goes.
func TestAnswersThatAreNotTaken(t *testing.T) {
	inSweep(t, func(w *sweepWorld) {
		ads := w.open(sotwMethod)
		defer func() { ads.close(); synctest.Wait() }()
		ads.send(w.encode(&discoveryv3.DiscoveryRequest{Node: nodeIn("many", "us/a"), TypeUrl: resource.EndpointsURL, ResourceNames: aliases(10_000)}))
		synctest.Wait()
		client := statusv3.NewClientStatusDiscoveryServiceClient(w.conn)
		p := w.peer(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		go p.answer()
		sample, err := client.FetchClientStatus(w.t.Context(), &statusv3.ClientStatusRequest{})
		if size := proto.Size(sample); err != nil || size < 1<<20 {
			t.Errorf("an answer of %d bytes, %v: too small for this test", size, err)
			return
		}
		if w.pressed.Load() {
			t.Error("told of pressure on memory before any answer waits")
		}
		asked := 0
		for ; err == nil && asked < 200; asked++ {
			if err := p.ask(statusv3.ClientStatusDiscoveryService_FetchClientStatus_FullMethodName); err != nil {
				t.Error(err)
				return
			}
			synctest.Wait()
			if asked%8 == 7 {
				_, err = client.FetchClientStatus(w.t.Context(), &statusv3.ClientStatusRequest{})
			}
		}
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "too many large answers that clients have not read yet") || asked < 10 {
			t.Errorf("after %d answers: %v", asked, err)
			return
		}
		time.Sleep(time.Second) //nolint:forbidigo // virtual time
		synctest.Wait()
		if !w.pressed.Load() {
			t.Error("not told of pressure on memory while answers wait")
		}
		_ = p.Close()
		for range 100 {
			time.Sleep(time.Second) //nolint:forbidigo // virtual time
			synctest.Wait()
			runtime.GC()
			if _, err = client.FetchClientStatus(w.t.Context(), &statusv3.ClientStatusRequest{}); err == nil {
				return
			}
		}
		t.Errorf("after the client has gone: %v", err)
	})
}

// TestPollsThatAreNotRead: a client that does not read its answer is sent away.
func TestPollsThatAreNotRead(t *testing.T) {
	inSweep(t, func(w *sweepWorld) {
		dial := w.polls.Transport.(*http.Transport).DialContext
		conn, err := dial(w.t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		body := `{"node": {"id": "slow"}, "resource_names": ["` + strings.Join(aliases(10_000), `", "`) + `"]}`
		go func() {
			_, _ = fmt.Fprintf(conn, "POST /v3/discovery:endpoints HTTP/1.1\r\nHost: isobar\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}()
		synctest.Wait()
		time.Sleep(31 * time.Second) //nolint:forbidigo // virtual time
		synctest.Wait()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		n, err := io.Copy(io.Discard, resp.Body)
		if err == nil || n < 1<<19 {
			t.Errorf("%d bytes, %v: want an answer that breaks off", n, err)
		}
	})
}
