package admission_test

import (
	"net"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/admission"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestEndedHoldersDoNotWait: while one caller ends what holds most, another one that was ended meanwhile does not
// wait for it: it has to free what it keeps.
func TestEndedHoldersDoNotWait(t *testing.T) {
	ending, goOn := make(chan struct{}, 10), make(chan struct{})
	m := admission.NewMessages(5_000, admission.NewMetrics(nil), func(net.Addr, int64) {
		ending <- struct{}{}
		<-goOn
	})
	body := func() *admission.Body { return m.Body(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, func() {}) }
	large, growing, other := body(), body(), body()
	defer growing.Close()
	large.Keeps(1_500)
	relieved := make(chan struct{})
	go func() {
		defer close(relieved)
		growing.Keeps(600) // of the 2,000 that may be in use
	}()
	<-ending
	done := make(chan struct{})
	go func() {
		defer close(done)
		other.Keeps(1_900)
	}()
	testhelp.Eventually(t, "what the other keeps counts", func() bool { return m.Used() > 2_000 })
	other.Close()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("a request that was ended waits for others to end")
	}
	close(goOn)
	<-relieved
	<-done
	if used := m.Used(); used != 600 {
		t.Errorf("%d bytes are in use, want the 600 of the request that was not ended", used)
	}
}

// TestReliefBeginsWithTheFullestAddress: of several addresses the one that holds most loses its largest request,
// and then the one that holds most of what is left.
func TestReliefBeginsWithTheFullestAddress(t *testing.T) {
	var ended []int
	m := admission.NewMessages(5_000, admission.NewMetrics(nil), func(_ net.Addr, bytes int64) { ended = append(ended, int(bytes)) })
	for _, x := range []struct {
		host  byte
		bytes int
	}{{1, 400}, {1, 500}, {2, 700}, {3, 300}, {3, 90}} {
		b := m.Body(&net.TCPAddr{IP: net.IPv4(10, 0, 0, x.host)}, func() {})
		defer b.Close()
		b.Keeps(x.bytes)
	}
	last := m.Body(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 4)}, func() {})
	defer last.Close()
	last.Keeps(1_100) // 3,090 of 2,000
	if len(ended) != 1 || ended[0] != 1_100 || m.Used() != 1_990 {
		t.Fatalf("ended %v, %d in use", ended, m.Used())
	}
	next := m.Body(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 4)}, func() {})
	defer next.Close()
	next.Keeps(600) // 2,590: one of the 900 of the first address, then one of the 700 of the second
	if len(ended) != 3 || ended[1] != 500 || ended[2] != 700 || m.Used() != 1_390 {
		t.Errorf("ended %v, %d in use", ended, m.Used())
	}
}
