// A server in Go whose session with a broker survives its restarts: server.c says what it reads and writes.
//
//	go run .
package main

/*
#cgo pkg-config: mcp-sessiond
#include <mcp_sessiond.h>
*/
import "C"

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"
)

// Sessiond is this server's session with the daemon. Goroutines may share it.
type Sessiond struct{ handle *C.mcp_sessiond }

// Init never fails: where there can be no handle, no call does anything.
func Init() Sessiond {
	var handle *C.mcp_sessiond
	C.mcp_sessiond_init(nil, &handle)
	return Sessiond{handle}
}

// Load gives the token that a former instance has stored, or nil: start afresh.
func (s Sessiond) Load() []byte {
	var token *C.mcp_sessiond_token
	C.mcp_sessiond_load(s.handle, &token)
	defer C.mcp_sessiond_token_free(token)
	bytes := (*byte)(unsafe.Pointer(C.mcp_sessiond_token_bytes(token)))
	return append([]byte(nil), unsafe.Slice(bytes, int(C.mcp_sessiond_token_size(token)))...)
}

// Store keeps a token that the broker has issued.
func (s Sessiond) Store(token []byte) error {
	return inOneThread(func() C.mcp_sessiond_result {
		return C.mcp_sessiond_store(s.handle, unsafe.Pointer(unsafe.SliceData(token)), C.size_t(len(token)))
	})
}

// Reject deletes the token that was loaded: the broker has refused it.
func (s Sessiond) Reject() error {
	return inOneThread(func() C.mcp_sessiond_result { return C.mcp_sessiond_reject(s.handle) })
}

// Status says in words whether resume works.
func (s Sessiond) Status() string {
	var status C.mcp_sessiond_status
	status.size = C.sizeof_mcp_sessiond_status
	C.mcp_sessiond_get_status(s.handle, &status)
	return C.GoString(&status.text[0])
}

// mcp_sessiond_last_error belongs to the thread of the call, which a goroutine may leave in between.
func inOneThread(call func() C.mcp_sessiond_result) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if call() != C.MCP_SESSIOND_OK {
		return errors.New(C.GoString(C.mcp_sessiond_last_error()))
	}
	return nil
}

func say(err error) {
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ok")
}

func main() {
	sessiond := Init()
	if token := sessiond.Load(); token != nil {
		fmt.Printf("resumed %s\n", token)
	} else {
		fmt.Println("fresh")
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if token, found := strings.CutPrefix(lines.Text(), "issue "); found {
			say(sessiond.Store([]byte(token)))
		} else if lines.Text() == "refuse" {
			say(sessiond.Reject())
		} else if lines.Text() == "status" {
			fmt.Println(sessiond.Status())
		}
	}
}
