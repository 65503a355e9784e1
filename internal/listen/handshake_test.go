package listen

import (
	"net"
	"testing"
	"time"
)

// TestAddressLog: a line a minute for each address, and a bound on how many are
// remembered.
func TestAddressLog(t *testing.T) {
	var l addressLog
	now := time.Unix(0, 0)
	at := func(i int) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, byte(i>>8), byte(i)), Port: i} }
	for i := range addressLogMost {
		if !l.allow(at(i), now) || l.allow(at(i), now.Add(59*time.Second)) {
			t.Fatalf("address %d: want one line a minute", i)
		}
	}
	if l.allow(at(addressLogMost), now) {
		t.Error("more addresses are remembered than the limit")
	}
	if !l.allow(at(addressLogMost), now.Add(time.Minute)) || len(l.last) != 1 {
		t.Errorf("after a minute %d addresses are remembered", len(l.last))
	}
}
