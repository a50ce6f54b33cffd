package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"strconv"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// plugin keeps the instances: their labels by ID.
type plugin struct {
	mu        sync.Mutex
	instances map[string]map[string]string
	newest    string // the ID of the instance that was made last
	prefixed  int    // instances whose IDs were the beginnings of others
}

// call is one request of the broker and the answer to it.
type call struct {
	plugin *plugin
	method string
	// message is the request's one message.
	message []byte
	w       http.ResponseWriter
	r       *http.Request
}

type connKey struct{}

// serve answers HTTP/2 without TLS until the listener is closed.
func (p *plugin) serve(listener net.Listener) {
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Protocols:      protocols,
		Handler:        http.HandlerFunc(p.answer),
		MaxHeaderBytes: 1 << 20,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
	_ = server.Serve(listener)
}

// answer does as planned.
func (p *plugin) answer(w http.ResponseWriter, r *http.Request) {
	c := &call{plugin: p, method: path.Base(r.URL.Path), w: w, r: r}
	// On go-plugin's own stream nobody says anything first.
	if c.method != "StartStream" && c.receive() != nil {
		return
	}
	w.Header().Set("Content-Type", "application/grpc")
	plan := planned(c.method)
	for _, behaviours := range []map[string]func(*call){anyCall(), anyFrame(), anyError(), someAnswer(), someExecution()} {
		if behave, ok := behaviours[plan]; ok {
			behave(c)
			return
		}
	}
	c.well()
}

// receive reads the one message of the request, which must be all of it for calls
// that stream nothing to us.
func (c *call) receive() error {
	var prefix [5]byte
	if _, err := io.ReadFull(c.r.Body, prefix[:]); err != nil {
		return err
	}
	c.message = make([]byte, binary.BigEndian.Uint32(prefix[1:]))
	_, err := io.ReadFull(c.r.Body, c.message)
	return err
}

// read decodes the request.
func read[M proto.Message](c *call, into M) M {
	if err := proto.Unmarshal(c.message, into); err != nil {
		panic(err)
	}
	return into
}

// send sends a message; it reports whether anybody takes it.
func (c *call) send(m proto.Message) bool {
	data, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return c.frame(0, uint32(len(data)), data)
}

// frame writes what gRPC calls a length-prefixed message, be it true or not.
func (c *call) frame(flags byte, length uint32, data []byte) bool {
	prefix := binary.BigEndian.AppendUint32([]byte{flags}, length)
	if _, err := c.w.Write(append(prefix, data...)); err != nil {
		return false
	}
	return http.NewResponseController(c.w).Flush() == nil
}

// end ends the call with a status, and with details if there are any.
func (c *call) end(code codes.Code, message string, details []byte) {
	c.trailer("Grpc-Status", strconv.Itoa(int(code)))
	if message != "" {
		c.trailer("Grpc-Message", escaped(message))
	}
	if details != nil {
		c.trailer("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(details))
	}
}

func (c *call) trailer(name, value string) { c.w.Header().Add(http.TrailerPrefix+name, value) }

// escaped is gRPC's percent encoding.
func escaped(text string) string {
	var b []byte
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' || c == '%' {
			b = fmt.Appendf(b, "%%%02X", c)
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// reply sends the one message of a call that is not a stream.
func (c *call) reply(m proto.Message) {
	c.send(m)
	c.end(codes.OK, "", nil)
}
