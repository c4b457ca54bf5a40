struct Server {
    port: u16,
}

impl Server {
    #[runtime::main]
    async fn run(&self) -> u16 {
        self.port
    }

    #[runtime::main]
    async fn consume(self: Box<Self>, other: u16) -> u16 {
        self.port + other
    }
}

fn main() {}
