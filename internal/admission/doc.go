// Package admission decides who may come in when many want to: token buckets
// for new streams and connections, of which one address gets at most half, and
// what one peer may hold open at once.
package admission
