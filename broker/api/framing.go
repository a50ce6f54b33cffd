package api

import (
	"bytes"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// ambiguousHead finds a request whose end, or whose host, somebody else may see
// elsewhere than we do: a proxy in front, which would then take bytes of one client
// for the request of another. RFC 9112 forbids all of it; fasthttp lets it pass.
func ambiguousHead(header *fasthttp.RequestHeader) bool {
	lengths, encodings, hosts := 0, 0, 0
	for line := range bytes.Lines(header.RawHeaders()) { // fasthttp keeps but one of a name elsewhere
		line, whole := bytes.CutSuffix(line, []byte("\r\n"))
		if whole && len(line) == 0 {
			break
		}
		name, value, field := bytes.Cut(line, []byte(":"))
		if !whole || !field || !isFieldName(name) || bytes.ContainsAny(value, "\r\x00") {
			return true // section 2.2 for the ends of lines, 5.1 for space before the colon, 5.2 for folded lines
		}
		switch {
		case bytes.EqualFold(name, []byte(fiber.HeaderContentLength)):
			lengths++
			if !isNumber(bytes.Trim(value, " \t")) {
				return true
			}
		case bytes.EqualFold(name, []byte(fiber.HeaderTransferEncoding)):
			encodings++
			if !bytes.EqualFold(bytes.Trim(value, " \t"), []byte("chunked")) {
				return true
			}
		case bytes.EqualFold(name, []byte(fiber.HeaderHost)):
			hosts++
		}
	}
	switch {
	case lengths+encodings > 1, hosts > 1, hosts == 1 && anotherHost(header):
		return true
	case header.IsHTTP11():
		return hosts == 0 // section 3.2
	default:
		return encodings > 0 // section 6.1: who wrote it cannot know what it means
	}
}

// anotherHost reports whether the first line names a host that the field Host does not.
func anotherHost(header *fasthttp.RequestHeader) bool {
	target := string(header.RequestURI())
	if strings.HasPrefix(target, "/") {
		return false
	}
	_, rest, absolute := strings.Cut(target, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	return absolute && !strings.EqualFold(rest[:end], string(header.Host()))
}

// isFieldName reports whether a name is a token, as section 5.1 of RFC 9110 wants it.
func isFieldName(name []byte) bool {
	for _, c := range name {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) < 0 {
			return false
		}
	}
	return len(name) > 0
}

func isNumber(value []byte) bool {
	for _, c := range value {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(value) > 0
}
