package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// attemptPatience bounds one attempt of a request that another member of etcd could answer. A
// member whose process hangs keeps its connections open, and the client takes 13 s to find out. A
// renewal asks each member of three once or twice, and has 3 s.
const attemptPatience = 600 * time.Millisecond

// repeat makes a request that may arrive twice. If a member does not answer in time, it tries again:
// the client sends each attempt to the next member. The last attempt has all the time that ctx
// leaves, so that an etcd that is slow as a whole can answer.
func (e *Engine) repeat(ctx context.Context, request func(context.Context) error) error {
	for range len(e.opts.Client.Endpoints()) - 1 {
		once, cancel := context.WithTimeout(ctx, attemptPatience)
		err := request(once)
		late := once.Err() != nil
		cancel()
		if err == nil || ctx.Err() != nil || !late && !errors.Is(err, rpctypes.ErrNoLeader) {
			return err
		}
	}
	return request(ctx)
}

// led has members that are cut off from etcd's leader refuse a request at once. Otherwise they have
// it wait for a leader, although another member could answer.
func led(ctx context.Context) context.Context { return clientv3.WithRequireLeader(ctx) }

func (e *Engine) get(ctx context.Context, key string, options ...clientv3.OpOption) (r *clientv3.GetResponse, err error) {
	err = e.repeat(ctx, func(ctx context.Context) error {
		r, err = e.opts.Client.Get(led(ctx), key, options...)
		return err
	})
	return r, err
}

func (e *Engine) grant(ctx context.Context) (lease clientv3.LeaseID, err error) {
	err = e.repeat(ctx, func(ctx context.Context) error {
		r, err := e.opts.Client.Grant(led(ctx), int64(e.opts.TTL/time.Second))
		if err == nil {
			lease = r.ID
		}
		return err
	})
	return lease, err
}

// prolong renews a lease. It reports false if the lease is gone.
func (e *Engine) prolong(ctx context.Context, lease clientv3.LeaseID) (bool, error) {
	return found(e.repeat(ctx, func(ctx context.Context) error {
		_, err := e.opts.Client.KeepAliveOnce(led(ctx), lease)
		return err
	}))
}

// revoke ends a lease. It reports false if the lease was gone.
func (e *Engine) revoke(ctx context.Context, lease clientv3.LeaseID) (bool, error) {
	return found(e.repeat(ctx, func(ctx context.Context) error {
		_, err := e.opts.Client.Revoke(led(ctx), lease)
		return err
	}))
}

// found separates the answer that a lease does not exist from failures.
func found(err error) (bool, error) {
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return false, nil
	}
	return err == nil, err
}

// transact makes a transaction of the election. It may arrive twice: its conditions refuse it the
// second time. Therefore only what the caller then reads in etcd says whether it counted.
func (e *Engine) transact(ctx context.Context, conditions []clientv3.Cmp, op clientv3.Op) error {
	return e.repeat(ctx, func(ctx context.Context) error {
		_, err := e.opts.Client.Txn(led(ctx)).If(conditions...).Then(op).Commit()
		return err
	})
}
