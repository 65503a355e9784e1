// Package peerv1 is the protocol between replicas, generated from
// proto/isobar/peer/v1/peer.proto. protoc 3.21.12 generates it again, with
// protoc-gen-go v1.36.12 and protoc-gen-go-grpc v1.6.2 on PATH:
//
//	go generate ./internal/replica/peerv1
package peerv1

//go:generate protoc -I ../../../proto --go_out=../../.. --go_opt=module=github.com/isobar-xds/isobar --go-grpc_out=../../.. --go-grpc_opt=module=github.com/isobar-xds/isobar isobar/peer/v1/peer.proto
