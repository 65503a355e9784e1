package replica_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/replica"
	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/engine/file"
	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// otherVersion is a replica of another version of Isobar: what it says, and the plans
// that it gets.
type otherVersion struct {
	peerv1.UnimplementedPeerServiceServer

	hello *peerv1.Hello

	mu    sync.Mutex
	plans map[string]bool // contents
	bases int             // parts that begin a difference
	sums  int             // digests of all bytes
	sets  int             // digests of fields

	packed bool
}

func (o *otherVersion) Exchange(stream grpc.BidiStreamingServer[peerv1.ExchangeRequest, peerv1.ExchangeResponse]) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.Send(&peerv1.ExchangeResponse{Hello: o.hello}); err != nil {
		return err
	}
	var content []byte
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		p := m.GetPlan()
		if p == nil {
			continue
		}
		o.mu.Lock()
		if p.GetClaim() != nil {
			content = nil
			o.sums += len(p.GetDigest()) / sha256.Size
			o.sets += len(p.GetFieldsDigest()) / sha256.Size
		}
		if p.GetBaseVersion() > 0 {
			o.bases++
		}
		o.packed = o.packed || p.GetCompressed()
		if content = append(content, p.GetContent()...); p.GetLast() {
			o.plans[string(content)] = true
		}
		o.mu.Unlock()
	}
}

func (o *otherVersion) has(content string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.plans[content]
}

// besideVersion starts a replica of this version whose group has one of another version.
func besideVersion(t *testing.T, hello *peerv1.Hello) (f *fleet, own *member, other *otherVersion) {
	t.Helper()
	f = &fleet{t: t, dir: t.TempDir(), members: map[string]*member{}}
	var listeners []net.Listener
	for i := range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
		f.peers = append(f.peers, replica.Peer{Name: fmt.Sprintf("isobar-%d", i), Address: l.Addr().String()})
	}
	hello.Group, hello.Replica = "prod", &peerv1.Identity{Name: "isobar-1", Incarnation: 7}
	other = &otherVersion{hello: hello, plans: map[string]bool{}}
	server := grpc.NewServer()
	peerv1.RegisterPeerServiceServer(server, other)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listeners[1]) }()
	own = f.start("isobar-0", listeners[0], &memoryDisk{})
	t.Cleanup(func() {
		own.end()
		<-own.done
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return f, own, other
}

// TestMemberOfAnEarlierVersion asserts that a leader sends whole plans to a replica whose
// version knows no differences, and differences to one that does, and that it sends each the digest
// that its version knows.
func TestMemberOfAnEarlierVersion(t *testing.T) {
	for newest, differs := range map[uint32]bool{1: false, 2: true, 3: true, 4: true} {
		f, own, other := besideVersion(t, &peerv1.Hello{Protocol: newest, OldestProtocol: 1, Version: "other"})
		f.leader()
		contents := []string{strings.Repeat("a", 5000), strings.Repeat("a", 5000) + "b", strings.Repeat("a", 5000) + "c"}
		for i := range contents { // one field of protobuf after the other, so that they have something in common
			data, err := proto.Marshal(&peerv1.PlanContent{Header: []byte(contents[i]), Health: bytes.Repeat([]byte("h"), 9000)})
			if err != nil {
				t.Fatal(err)
			}
			contents[i] = string(data)
		}
		for i, c := range contents {
			f.publish(own, c)
			if differs {
				f.until("a compressed plan, and then differences", func() bool {
					other.mu.Lock()
					defer other.mu.Unlock()
					return other.packed && other.bases >= i
				})
				continue
			}
			f.until("a whole plan", func() bool { return other.has(c) })
		}
		other.mu.Lock()
		if known := newest >= 3; known != (other.sums == 0) || known != (other.sets > 0) {
			t.Errorf("a replica of version %d of the protocol got %d digests of all bytes, and %d of fields", newest, other.sums, other.sets)
		}
		other.mu.Unlock()
		if !differs && (other.bases > 0 || other.packed) {
			t.Errorf("a replica of version %d of the protocol got a difference or a compressed plan", newest)
		}
	}
}

// TestMemberOfAnUnknownVersion asserts that replicas which have no version of the protocol
// in common refuse each other, and that both sides name the versions of both. Such a replica tries
// again and again, and the log names it once.
func TestMemberOfAnUnknownVersion(t *testing.T) {
	const refused = `versions 8 to 9 of the protocol between replicas (Isobar v9), and this replica 1 to 3 (Isobar test)`
	hello := &peerv1.Hello{Protocol: 9, OldestProtocol: 8, Version: "v9"}
	f, own, _ := besideVersion(t, hello)
	f.until("the reason in the status", func() bool {
		for _, r := range own.Status().Replicas {
			if strings.Contains(r.Failure, refused) {
				return true
			}
		}
		return false
	})
	conn, err := grpc.NewClient(f.peers[0].Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for range 5 {
		stream, err := peerv1.NewPeerServiceClient(conn).Exchange(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&peerv1.ExchangeRequest{Message: &peerv1.ExchangeRequest_Hello{Hello: hello}}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), refused) {
			t.Errorf("it is answered %v", err)
		}
	}
	if n := strings.Count(f.log.String(), "rejected the connection of another replica"); n != 1 {
		t.Errorf("the log names it %d times", n)
	}
}

// State that version 1 saved: the fence and what it knew, and a plan.
const (
	savedReplica1 = "0801100518c28db70122150805120c0a0869736f6261722d30100918c18db701"
	savedPlan1    = "080112150805120c0a0869736f6261722d30100918c18db70118c28db70122207692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed2a036f6e65"
)

// TestSavedStateOfOtherVersions asserts that a replica goes on from what version 1 saved,
// and that it refuses to start with what a newer version saved, naming both formats.
func TestSavedStateOfOtherVersions(t *testing.T) {
	open := func(d *memoryDisk) (*replica.Replica, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		dir := t.TempDir()
		return replica.New(replica.Options{
			Group: "prod", Name: "isobar-0", Version: "test", Disk: d, Listener: l, Timing: timing,
			OpenEngine: func(self group.Identity) (engine.Engine, error) { return file.Open(dir, "prod", self) },
			Open:       func(content group.Content) (any, error) { return text(&content), nil },
			Log:        slog.New(slog.DiscardHandler),
		})
	}
	saved, err := hex.DecodeString(savedReplica1)
	plan, errPlan := hex.DecodeString(savedPlan1)
	if err = errors.Join(err, errPlan); err != nil {
		t.Fatal(err)
	}
	r, err := open(&memoryDisk{replica: saved, plan: plan})
	if err != nil {
		t.Fatalf("what version 1 saved: %v", err)
	}
	if s, ok := r.Served(); r.Status().Epoch != 5 || !ok || s.Version != 3_000_002 || s.Opened != "one" || s.Claim.Leader.Name != "isobar-0" {
		t.Errorf("it knows of epoch %d and serves %+v", r.Status().Epoch, s)
	}
	newer := func(m proto.Message) []byte {
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for what, d := range map[string]*memoryDisk{
		"replica": {replica: newer(&peerv1.SavedReplica{Format: 2})}, "plan": {plan: newer(&peerv1.SavedPlan{Format: 2})},
	} {
		if _, err := open(d); !errors.Is(err, group.ErrNewerFormat) || !strings.Contains(err.Error(), "the saved "+what+" has format 2, this program reads 1") {
			t.Errorf("the saved %s of a newer version: %v", what, err)
		}
	}
}

// TestSavedPlansForEarlierVersions asserts that a replica saves a plan so that an earlier version can start
// from it: as the same message, with the digest that it knows.
func TestSavedPlansForEarlierVersions(t *testing.T) {
	f := newFleet(t, 1)
	leader := f.leader()
	content, err := proto.Marshal(&peerv1.PlanContent{Format: 1, Header: []byte("header"), Health: bytes.Repeat([]byte("h"), 900)})
	if err != nil {
		t.Fatal(err)
	}
	version := f.publish(leader, string(content))
	var data []byte
	f.until("the plan is saved", func() bool {
		data, _ = leader.disk.LoadPlan()
		return data != nil
	})
	saved := &peerv1.SavedPlan{}
	if err := proto.Unmarshal(data, saved); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	if saved.GetFormat() != 1 || saved.GetVersion() != version || !bytes.Equal(saved.GetDigest(), sum[:]) || !bytes.Equal(saved.GetContent(), content) {
		t.Errorf("it saved %v, want version %d with the content %q", saved, version, content)
	}
	if again, err := proto.Marshal(saved); err != nil || !bytes.Equal(again, data) {
		t.Errorf("it saved %x, which is the message %x, %v", data, again, err)
	}
}
