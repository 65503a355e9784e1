package member

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/engine/etcd"
	"github.com/isobar-xds/isobar/internal/replica/engine/file"
	lease "github.com/isobar-xds/isobar/internal/replica/engine/kubernetes"
	"github.com/isobar-xds/isobar/internal/replica/group"
)

const (
	// engineCompare is how often the leader looks whether the engine lost writes.
	engineCompare = 2 * time.Second
	// engineInspect is how often a replica looks what the engine will run out of.
	engineInspect = 30 * time.Second
)

// election is the engine by which the group elects its leader and keeps what operators write.
type election struct {
	configured *config.Replicas
	self       *self
	operated   *Operated
	closers    []func() error
	warnings   atomic.Pointer[[]string] // warnings about the engine, such as little space
}

// close closes what the engine opened.
func (e *election) close() error {
	var err error
	for _, closer := range e.closers {
		err = errors.Join(err, closer())
	}
	return err
}

// open opens the engine that the configuration names.
func (e *election) open(self group.Identity) (engine.Engine, error) {
	c := e.configured
	switch {
	case c.Kubernetes != nil:
		return openLease(c, self)
	case c.Etcd == nil:
		return file.Open(c.File, c.Group, self)
	}
	settings := clientv3.Config{
		Endpoints: c.Etcd.Endpoints, DialTimeout: 3 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		Logger: zap.NewNop(),
	}
	if t := c.Etcd.TLS; t != nil {
		tlsConfig, err := identity.DialFiles{CA: t.CA, Cert: t.Cert, Key: t.Key}.Config()
		if err != nil {
			return nil, fmt.Errorf("replicas.election.etcd: %w", err)
		}
		tlsConfig.ServerName = t.ServerName
		settings.TLS = tlsConfig
	}
	client, err := clientv3.New(settings)
	if err != nil {
		return nil, fmt.Errorf("replicas.election.etcd: %w", err)
	}
	e.closers = append(e.closers, client.Close)
	return etcd.Open(etcd.Options{Client: client, Prefix: c.Etcd.Prefix, Group: c.Group, Self: self})
}

// openLease opens the election by a Lease.
func openLease(c *config.Replicas, self group.Identity) (engine.Engine, error) {
	cluster := kubernetes.Cluster{Kubeconfig: c.Kubernetes.Kubeconfig, Context: c.Kubernetes.Context}
	api, err := cluster.REST()
	if err != nil {
		return nil, fmt.Errorf("replicas.election.kubernetes: %w", err)
	}
	namespace := c.Kubernetes.Namespace
	if namespace == "" {
		data, err := os.ReadFile(podNamespace)
		if err != nil {
			return nil, fmt.Errorf("replicas.election.kubernetes: the namespace of the Pod can't be read; set namespace: %w", err)
		}
		namespace = strings.TrimSpace(string(data))
	}
	return lease.Open(lease.Options{Config: api, Namespace: namespace, Lease: c.Kubernetes.Lease, Group: c.Group, Self: self})
}

// podNamespace has the namespace of the Pod in which the process runs.
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// watch follows the state of the election engine until ctx ends.
func (e *election) watch(ctx context.Context) {
	compare, inspect := time.NewTicker(engineCompare), time.NewTicker(engineInspect)
	defer compare.Stop()
	defer inspect.Stop()
	e.inspect(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-compare.C:
			e.compare(ctx)
		case <-inspect.C:
			e.inspect(ctx)
		}
	}
}

// compare notes that the engine has other writes of operators than this leader made.
// If it has fewer, it was restored from a backup so fast that leadership did not change, and
// [takeover.recall] writes them again. If it has more, they were written while nobody led.
func (e *election) compare(ctx context.Context) {
	sequence, known := e.operated.last()
	if !known || e.self.leading() != nil {
		return
	}
	if last, err := e.self.LastWrite(ctx); err == nil && last != sequence {
		e.operated.forget(sequence)
	}
}

// inspect stores the engine's warnings for operators.
func (e *election) inspect(ctx context.Context) {
	warnings := e.self.EngineWarnings(ctx)
	e.warnings.Store(&warnings)
}
