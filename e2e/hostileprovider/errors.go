package main

import (
	"bytes"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// evil is text that would do harm where it is shown as it is.
const evil = "bad\n2026-01-01T00:00:00.000Z [ERROR] forged\r\x1b[31mred\x1b]0;title\a<script>alert(1)</script>\u202e\x00"

// anyError are errors that say too much, too little or something untrue.
func anyError() map[string]func(*call) {
	return map[string]func(*call){
		"error_text": func(c *call) { c.end(codes.Unknown, evil, nil) },
		"error_detail": func(c *call) {
			c.end(codes.Internal, evil, details(&providerv1.ErrorDetail{
				Code: "SB009", Message: evil, Field: evil, Capability: evil, RetryAfter: &durationpb.Duration{Seconds: 1 << 40},
			}))
		},
		"error_code_of_tomorrow": func(c *call) {
			c.end(codes.Internal, "x", details(&providerv1.ErrorDetail{Code: "SB999" + evil, Message: "new"}))
		},
		"error_malformed": func(c *call) { c.end(codes.Internal, "x", []byte("\xff\xff\xff")) },
		"error_no_base64": func(c *call) {
			c.trailer("Grpc-Status-Details-Bin", "!!! not base64 !!!")
			c.end(codes.Internal, "x", nil)
		},
		"error_status_huge": func(c *call) {
			c.trailer("Grpc-Status", "99999999999999999999")
			c.trailer("Grpc-Message", "x")
		},
		"error_status_word":  func(c *call) { c.trailer("Grpc-Status", "fine") },
		"error_text_huge":    func(c *call) { c.end(codes.Internal, strings.Repeat("x", 12<<20), nil) },
		"error_details_many": func(c *call) { c.end(codes.Internal, "x", bytes.Repeat([]byte{0x1a, 0}, 5<<20)) }, // 5 million empty details
		"error_details_nested": func(c *call) {
			c.end(codes.Internal, "x", bytes.Repeat([]byte{0x1a, 0x7f}, 20<<10))
		},
		"unavailable":        func(c *call) { c.end(codes.Unavailable, "dial unix /run/secret", nil) },
		"canceled":           func(c *call) { c.end(codes.Canceled, "x", nil) },
		"deadline":           func(c *call) { c.end(codes.DeadlineExceeded, "x", nil) },
		"not_there":          func(c *call) { c.end(codes.Unimplemented, evil, nil) },
		"exhausted":          func(c *call) { c.end(codes.ResourceExhausted, evil, nil) },
		"success_of_nothing": func(c *call) { c.end(codes.OK, "", nil) },
	}
}

func details(detail proto.Message) []byte {
	with, err := status.New(codes.Internal, "x").WithDetails(protoadapt.MessageV1Of(detail))
	if err != nil {
		panic(err)
	}
	data, err := proto.Marshal(with.Proto())
	if err != nil {
		panic(err)
	}
	return data
}
