package replicas

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/engine/etcd"
	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/replicatest"
)

// patience stops a test that hangs; nothing is measured by it.
const patience = 2 * time.Minute

// binary is etcd's server, built by TestMain.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "isobar-etcd")
	if err == nil {
		binary = filepath.Join(dir, "etcd")
		build := exec.Command("go", "build", "-o", binary, "go.etcd.io/etcd/server/v3")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		err = build.Run()
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "building etcd:", err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// cluster is an etcd of several members, each a process.
type cluster struct {
	t       *testing.T
	members []*etcdMember
}

type etcdMember struct {
	args    []string
	client  string
	process *exec.Cmd
	log     *bytes.Buffer
}

func startCluster(t *testing.T, size int, flags ...string) *cluster {
	t.Helper()
	c := &cluster{t: t}
	var initial []string
	peers := make([]string, size)
	for i := range size {
		peers[i] = "http://" + testhelp.FreePort(t) // members start again there, after up to an hour
		initial = append(initial, fmt.Sprintf("m%d=%s", i, peers[i]))
	}
	for i := range size {
		client := "http://" + testhelp.FreePort(t)
		c.members = append(c.members, &etcdMember{client: client, args: append([]string{
			"--name", fmt.Sprintf("m%d", i), "--data-dir", t.TempDir(),
			"--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i],
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--initial-cluster", strings.Join(initial, ","), "--log-level", "error",
		}, flags...)})
	}
	for _, m := range c.members {
		c.start(m)
	}
	t.Cleanup(func() {
		for _, m := range c.members {
			c.kill(m)
		}
	})
	client := c.client()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		_, err := client.Get(ctx, "ready")
		if err == nil {
			return c
		}
		if ctx.Err() != nil {
			t.Fatalf("etcd does not start: %v\n%s", err, c.members[0].log)
		}
	}
}

func (c *cluster) start(m *etcdMember) {
	c.t.Helper()
	m.log = &bytes.Buffer{}
	m.process = exec.Command(binary, m.args...)
	m.process.Stdout, m.process.Stderr = m.log, m.log
	if err := m.process.Start(); err != nil {
		c.t.Fatal(err)
	}
}

// kill ends a member as a crash does.
func (c *cluster) kill(m *etcdMember) {
	if m.process == nil {
		return
	}
	_ = m.process.Process.Kill()
	_ = m.process.Wait() // it was killed
	m.process = nil
}

func (c *cluster) client() *clientv3.Client {
	c.t.Helper()
	var endpoints []string
	for _, m := range c.members {
		endpoints = append(endpoints, m.client)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// term returns the newest term of etcd's own elections.
func (c *cluster) term() (newest uint64) {
	c.t.Helper()
	client := c.client()
	for _, m := range c.members {
		ctx, cancel := context.WithTimeout(c.t.Context(), patience)
		s, err := client.Status(ctx, m.client)
		cancel()
		if err != nil {
			c.t.Fatalf("etcd member at %s: %v; it says:\n%s", m.client, err, m.log)
		}
		newest = max(newest, s.RaftTerm)
	}
	return newest
}

// link returns a client whose connections to a member go through a link.
func (c *cluster) link(t *testing.T) (*replicatest.Link, *clientv3.Client) {
	t.Helper()
	link, err := replicatest.NewLink(strings.TrimPrefix(c.members[0].client, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = link.Close() })
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"http://" + link.Address()}, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return link, client
}

func (c *cluster) open(name string, self group.Identity) *etcd.Engine {
	c.t.Helper()
	return c.openFor(name, self, 2*time.Second)
}

func (c *cluster) openFor(name string, self group.Identity, lease time.Duration) *etcd.Engine {
	c.t.Helper()
	e, err := etcd.Open(etcd.Options{Client: c.client(), Group: name, Self: self, TTL: lease})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = e.Close() })
	return e
}

// until runs the request until its standing satisfies ok. Errors are passed over.
func until(t *testing.T, e engine.Engine, r group.Request, ok func(group.Standing) bool) group.Standing {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		once, end := context.WithTimeout(ctx, 3*time.Second)
		s, err := e.Do(once, r)
		end()
		if err == nil && ok(s) {
			return s
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: the last standing is %+v, error %v", r.Op, s, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func leads(self group.Identity) func(group.Standing) bool {
	return func(s group.Standing) bool { return s.Holder == self }
}

// TestEtcdNearlyFull asserts that operators are told of a database near its quota, and of

// openAt opens an engine whose client has the members as its endpoints.
func openAt(t *testing.T, name string, self group.Identity, members ...*etcdMember) *etcd.Engine {
	t.Helper()
	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, m.client)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	e, err := etcd.Open(etcd.Options{Client: client, Group: name, Self: self})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}
