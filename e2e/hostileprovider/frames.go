package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
)

// anyFrame are answers that are no gRPC, or not as it should be.
func anyFrame() map[string]func(*call) {
	return map[string]func(*call){
		"no_status": func(c *call) { _ = http.NewResponseController(c.w).Flush() },
		"web_page": func(c *call) {
			c.w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(c.w, "<script>alert(1)</script>")
		},
		"http_500":  func(c *call) { http.Error(c.w, "\x1b[31mfailed", http.StatusInternalServerError) },
		"garbage":   func(c *call) { c.whole(0, []byte("\xff\xfe\xfd garbage \x00")) },
		"not_utf8":  func(c *call) { c.whole(0, []byte("\x0a\x02\xff\xfe")) }, // a string as field 1
		"length_4g": func(c *call) { c.frame(0, 1<<32-1, nil); select {} },
		"length_4g_and_end": func(c *call) {
			c.frame(0, 1<<32-1, nil)
			c.end(codes.OK, "", nil)
		},
		"half": func(c *call) {
			c.frame(0, 1000, []byte("half"))
			c.end(codes.OK, "", nil)
		},
		"too_large": func(c *call) { c.whole(0, unknownField(40<<20)) },
		"large":     func(c *call) { c.whole(0, unknownField(3<<20)) }, // below every limit, and nothing
		"zipped": func(c *call) { // 64 MiB in 64 KiB
			c.w.Header().Set("Grpc-Encoding", "gzip")
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = z.Write(make([]byte, 64<<20))
			_ = z.Close()
			c.whole(1, b.Bytes())
		},
		"odd_flags": func(c *call) { c.whole(0xff, nil) },
		"headers": func(c *call) { // 8 MiB of them
			for i := range 8 << 10 {
				c.w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("h", 1<<10))
			}
			c.well()
		},
		"reset": func(*call) { panic(http.ErrAbortHandler) },
		"close": func(c *call) {
			_ = c.conn().Close()
			select {}
		},
		"break": func(c *call) {
			_, _ = c.conn().Write(bytes.Repeat([]byte("\xffno frame"), 1000))
			select {}
		},
		"pings": func(c *call) { // a million, as frames of HTTP/2
			ping := append([]byte{0, 0, 8, 6, 0, 0, 0, 0, 0}, "pingping"...)
			many := bytes.Repeat(ping, 1000)
			for range 1000 {
				if _, err := c.conn().Write(many); err != nil {
					return
				}
			}
			c.well()
		},
		"two_answers": func(c *call) {
			c.frame(0, 0, nil)
			c.frame(0, 0, nil)
			c.end(codes.OK, "", nil)
		},
	}
}

// whole is a call with one message.
func (c *call) whole(flags byte, data []byte) {
	c.frame(flags, uint32(len(data)), data)
	c.end(codes.OK, "", nil)
}

func (c *call) conn() net.Conn { return c.r.Context().Value(connKey{}).(net.Conn) }

// unknownField is a message with one field that nobody knows.
func unknownField(size int) []byte {
	data := []byte{0xfa, 0x7f} // field 2047, bytes
	data = binary.AppendUvarint(data, uint64(size))
	return append(data, make([]byte, size)...)
}
