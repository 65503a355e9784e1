// A server of grpc-js that takes its listener from xDS. It listens on the address
// given as the first argument, and says the second with every answer.
'use strict';

const net = require('net');
const grpc = require('@grpc/grpc-js');
const xds = require('@grpc/grpc-js-xds');

xds.register();

// XdsServer listens on all addresses whatever it is given. A test listens on
// loopback alone, for which there is no option.
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  return typeof port === 'number' ? listen.call(this, port, '127.0.0.1', ...rest) : listen.call(this, port, ...rest);
};

const bytes = (b) => b;
const [address, name] = process.argv.slice(2);
const server = new xds.XdsServer();
server.addService(
  {
    EmptyCall: {
      path: '/grpc.testing.TestService/EmptyCall',
      requestStream: false,
      responseStream: false,
      requestSerialize: bytes,
      requestDeserialize: bytes,
      responseSerialize: bytes,
      responseDeserialize: bytes,
    },
  },
  {
    EmptyCall: (call, callback) => {
      const headers = new grpc.Metadata();
      headers.set('hostname', name);
      call.sendMetadata(headers);
      callback(null, Buffer.alloc(0));
    },
  },
);
server.bindAsync(address, new xds.XdsServerCredentials(grpc.ServerCredentials.createInsecure()), (err) => {
  console.error(err || 'serving');
});
