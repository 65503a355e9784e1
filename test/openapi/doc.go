// Package openapi tests docs/reference/openapi.json: that it describes every route of
// the admin API with every field of its answers, and that a real server answers so.
//
//	go test ./test/openapi -update
//
// writes it again from the code.
package openapi
